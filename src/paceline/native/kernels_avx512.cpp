#define PACELINE_PATH avx512
#define PACELINE_PATH_NAME "avx512"
#define PACELINE_MAX_ROWS 16
#define PACELINE_ABREAST 1
#include "kernel_table.hpp"
#include "simd_avx512.hpp"
#include "kernels.inl"
