// Tags of the 16-bit float types; arithmetic on them is in ptx/pair_math.cuh.
#pragma once

namespace humming::dtype {

struct f16 {};
struct bf16 {};

}  // namespace humming::dtype
