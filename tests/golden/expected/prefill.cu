// dense_bf16_u4_bf16_g32bf16_frag16_hopper-prefill_t64x128x128_w8_s4_sm90a
// Generated; see templates/kernels/dense_prefill.cu.j2 and specs/.
#include "../components/gemm/hopper_prefill.cuh"

namespace humming {

struct Traits {
  using Activation = dtype::bf16;
  using Weight = weight::Integer<4>;
  using Scales = ScaleGroups<4, dtype::bf16, ZeroPoint::kMidpoint>;
  static constexpr int kTileM = 64;
  static constexpr int kTileN = 128;
  static constexpr int kTileK = 128;
  static constexpr int kWarps = 8;
  static constexpr int kStages = 4;
  static constexpr int kThreads = 288;
  static constexpr int kConsumerRegisters = 232;
};

}  // namespace humming

extern "C" __global__ void __launch_bounds__(288, 1)
    dense_bf16_u4_bf16_g32bf16_frag16_hopper__prefill_t64x128x128_w8_s4_sm90a(const __grid_constant__ humming::MappedGemmArguments args) {
  using Kernel = humming::HopperPrefill<humming::Traits>;
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  __shared__ Kernel::Barriers barriers;
  Kernel::run(args, dynamic_shared, barriers);
}
