#include "kernel_table.hpp"

#include <cstring>

#if defined(PACELINE_AMX_PATH)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace paceline {

namespace portable {
extern const KernelTable kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
namespace amx {
extern const KernelTable kTable;
}
#endif

namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

#if defined(PACELINE_AMX_PATH)
// CPUID, leaf 7, tells of tiles of int8 (bits 24 and 25 of edx) and of GFNI (bit 8 of ecx). Linux gives the tiles'
// state, 8 KiB a thread, to processes that ask for it, and says no where that is switched off.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((c >> 8 & 1) == 0 || (d >> 24 & 3) != 3) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return allowed;
}
#endif
#endif

}  // namespace

const KernelTable* kernel_table(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::kTable;
#if defined(__x86_64__)
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &avx2::kTable;
  if (std::strcmp(name, "avx512") == 0 && has_avx512()) return &avx512::kTable;
#endif
#if defined(PACELINE_AMX_PATH)
  if (std::strcmp(name, "amx") == 0 && has_amx()) return &amx::kTable;
#endif
  return nullptr;
}

const KernelTable* best_kernel_table() {
  for (const char* name : {"amx", "avx512", "avx2"})
    if (const KernelTable* table = kernel_table(name)) return table;
  return &portable::kTable;
}

}  // namespace paceline
