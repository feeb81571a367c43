// The kernels, written once over the lanes of simd_*.hpp and compiled once per instruction path.
//
// Law 7 (row invariance): what happens to a row never depends on how many rows stand beside it. Every row has its
// own accumulators, filled in the same order in each instantiation, and nothing may be contracted or reassociated.

namespace paceline::PACELINE_PATH {
namespace {

#include "kernels_math.inl"
#include "kernels_pack.inl"
#include "kernels_gemm.inl"
#include "kernels_elementwise.inl"
#include "kernels_attention.inl"

}  // namespace

extern const KernelTable kTable;
const KernelTable kTable = {
    PACELINE_PATH_NAME, kMaxRows, kTaskQueries, width, pack_quants, pack_values, gemm, rms_norm, add_to,
    gated, softcap, store_kv, rotate, attend, merge, finish, release,
};

}  // namespace paceline::PACELINE_PATH
