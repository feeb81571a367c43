#define PACELINE_PATH avx2
#define PACELINE_PATH_NAME "avx2"
#define PACELINE_MAX_ROWS 4
#include "kernel_table.hpp"
#include "simd_avx2.hpp"
#include "kernels.inl"
