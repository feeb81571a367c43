#define PACELINE_PATH amx
#define PACELINE_PATH_NAME "amx"
#define PACELINE_MAX_ROWS 16
#define PACELINE_AMX 1
#define PACELINE_ABREAST 1
#include "kernel_table.hpp"
#include "simd_avx512.hpp"
#include "kernels.inl"
