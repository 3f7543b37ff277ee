// dense_f16_u4_f16_g128zf16_frag16_hopper-decode_t8x32x1024_w8r2_s6_sm90a
// Generated; see templates/kernels/dense_decode.cu.j2 and specs/.
#include "../components/gemm/hopper_decode.cuh"

namespace humming {

struct Traits {
  using Activation = dtype::f16;
  using Weight = weight::Integer<4>;
  using Scales = ScaleGroups<1, dtype::f16, ZeroPoint::kInteger>;
  static constexpr int kTileM = 8;
  static constexpr int kTileN = 32;
  static constexpr int kTileK = 1024;
  static constexpr int kWarps = 8;
  static constexpr int kRows = 2;
  static constexpr int kStages = 6;
};

}  // namespace humming

extern "C" __global__ void __launch_bounds__(288, 1)
    dense_f16_u4_f16_g128zf16_frag16_hopper__decode_t8x32x1024_w8r2_s6_sm90a(const __grid_constant__ humming::GemmArguments args) {
  using Kernel = humming::HopperDecode<humming::Traits>;
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  __shared__ Kernel::Barriers barriers;
  Kernel::run(args, dynamic_shared, barriers);
}
