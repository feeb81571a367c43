#include "kernel_table.hpp"

#include <cstring>

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
#endif

const KernelTable* kernel_table(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::kTable;
#if defined(__x86_64__)
  if (std::strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    return &avx2::kTable;
  if (std::strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
    return &avx512::kTable;
#endif
  return nullptr;
}

const KernelTable* best_kernel_table() {
  for (const char* name : {"avx512", "avx2"})
    if (const KernelTable* table = kernel_table(name)) return table;
  return &portable::kTable;
}

}  // namespace paceline
