// dense_f16_u4_f16_ch_frag16_turing-multistage_t16x32x256_w4r2_s2_sm75
// Generated; see templates/kernels/dense_multistage.cu.j2 and specs/.
#include "../components/gemm/multistage.cuh"

namespace humming {

struct Traits {
  using Activation = dtype::f16;
  using Weight = weight::Integer<4>;
  using Scales = ScaleGroups<0, dtype::f16, ZeroPoint::kMidpoint>;
  using Tier = tier::turing;
  static constexpr int kTileM = 16;
  static constexpr int kTileN = 32;
  static constexpr int kTileK = 256;
  static constexpr int kWarps = 4;
  static constexpr int kRows = 2;
  static constexpr int kStages = 2;
};

}  // namespace humming

extern "C" __global__ void __launch_bounds__(128, 1)
    dense_f16_u4_f16_ch_frag16_turing__multistage_t16x32x256_w4r2_s2_sm75(const __grid_constant__ humming::GemmArguments args) {
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  humming::Multistage<humming::Traits>::run(args, dynamic_shared);
}
