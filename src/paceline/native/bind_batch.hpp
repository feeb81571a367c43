// Arrays of Python as the native code takes them, and the checks that let the kernels trust a batch.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

#include "decoder.hpp"

namespace nb = nanobind;

namespace paceline {

using Ints = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct BatchArrays {
  const Ints &tokens, &sequences, &slots, &prefix, &tail_offsets, &tails, &block_offsets, &blocks, &logit_rows;
};

struct BatchLimits {
  int max_rows, vocab, num_blocks;
};

// Throws std::invalid_argument, which Python sees as ValueError.
void require(bool condition, const std::string& message);
// The batch in these arrays, whose memory it keeps pointing at; throws when anything in it is out of range.
Batch read_batch(const BatchArrays& arrays, const BatchLimits& limits);
// At least so many rows, exactly so many columns.
void check_shape(const Matrix& m, int rows, int columns, const std::string& name);

}  // namespace paceline
