// Tags of number formats: 16-bit floats (arithmetic in ptx/pair_math.cuh), and what scales are stored in
// (gemm/stored_scale.cuh).
#pragma once

namespace humming::dtype {

struct f16 {};
struct bf16 {};
struct f32 {};
struct e4m3 {};  // finite but for two NaN codes
struct e5m2 {};
struct e5m3 {};  // no sign
struct e8m0 {};  // no sign: powers of two

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;

}  // namespace humming::dtype
