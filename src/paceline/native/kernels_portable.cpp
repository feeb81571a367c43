#define PACELINE_PATH portable
#define PACELINE_PATH_NAME "portable"
#define PACELINE_MAX_ROWS 4
#include "kernel_table.hpp"
#include "simd_portable.hpp"
#include "kernels.inl"
