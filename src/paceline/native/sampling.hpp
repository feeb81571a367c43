// Sampling over one row of logits: pure functions over pointers, no state but a chosen instruction path.
//
// Every function gives the same bits on every instruction path: element-wise arithmetic is IEEE without
// contraction (-ffp-contract=off), and every sum runs over a fixed number of lanes in a fixed order.
// src/paceline/sampling/reference.py says the same in numpy and is what the tests compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace paceline::sampling {

// A vector that does not zero what is about to be overwritten (a vocabulary of doubles is two megabytes).
template <typename T>
struct RawAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = RawAllocator<U>;
  };
  template <typename U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(static_cast<Args&&>(args)...);
  }
};
template <typename T>
using Buffer = std::vector<T, RawAllocator<T>>;

struct Filter {
  double temperature;  // > 0
  int64_t top_k;       // 0: off
  double top_p;        // 1: off
  double min_p;        // 0: off
};

struct Law {
  Buffer<int32_t> ids;   // strictly ascending; empty while probs is not: every id of the vocabulary
  Buffer<double> probs;  // positive, summing to one
};

// Index of the largest value, the lowest index on ties. Throws std::invalid_argument on NaN or when no value
// is above minus infinity.
int32_t argmax(const float* logits, size_t count);

// The law of softmax(logits / temperature) after min_p, top_k and top_p, in this order. Tokens are ranked by
// logit, then by lower id. min_p keeps weights of at least min_p times the largest; top_p keeps the shortest
// prefix of the ranking whose share of the kept weight is at least top_p, where the weight of a whole vocabulary
// is summed to about 1e-6 relative (it decides about one token at the edge). Throws like argmax.
void filtered_law(const float* logits, size_t count, const Filter& filter, Law& law);

// Index i that maximises log(probs[i]) + g_i, where g_i is Gumbel noise belonging to (key, ids[i]).
size_t coupled_index(const int32_t* ids, const double* probs, size_t count, uint64_t key);

// Index drawn by inverting the cumulative sum of probs (summing to one) at uniform in [0, 1).
size_t inverse_index(const double* probs, size_t count, double uniform);

// A law that somebody else holds; ids strictly ascending.
struct LawView {
  const int32_t* ids;
  const double* probs;
  size_t count;
};

// max(scale * p - q, 0), normalised into law; returns its mass before that (0 leaves law empty).
double positive_difference(const LawView& p, const LawView& q, double scale, Law& law);

// That mass alone, to a few ulps of scale: one look at each token of q.
double positive_mass(const LawView& p, const LawView& q, double scale);

// log(sum(exp(logits))). Throws like argmax.
double log_sum_exp(const float* logits, size_t count);

// Ids of the `wanted` largest values, best first, lower id first on ties. wanted <= count.
void top_ids(const float* logits, size_t count, size_t wanted, int32_t* ids);

// top_ids and their log-probabilities under softmax(logits), to about 1e-6 and never above zero. `keys` is room for
// `wanted` of them: nothing is allocated. Throws like argmax.
void top_log_probs(const float* logits, size_t count, size_t wanted, int32_t* ids, float* log_probs, uint64_t* keys);

// The noise of (key, id): output number id of the SplitMix64 stream whose state starts at key.
uint64_t noise_word(uint64_t key, uint64_t id);

// The paths this machine can run, best first, ending with "portable"; and a choice among them, for tests.
std::vector<const char*> instruction_paths();
void choose_instruction_path(const char* name);

}  // namespace paceline::sampling
