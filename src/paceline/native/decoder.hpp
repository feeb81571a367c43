// A decoder-only transformer over paged keys and values: one ragged forward pass, row-invariant (design.md, law 7).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel_table.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace paceline {

constexpr int kReplicatedRows = 8;  // up to here preparing rows on every thread is cheaper than sharing them
constexpr int kTilesAtOnce = 2;     // that one call multiplies: kernels do so faster than one after another
constexpr int kShortRows = 16;      // passes of up to so many rows are short enough to be judged for crowding

inline int round_up(int n, int to) { return (n + to - 1) / to * to; }

struct Rope {
  std::vector<double> inverse_frequencies;
  bool interleaved = false;
  double attention_factor = 1.0;
};

// vocab: ids a token may have; outputs: logits of a row, which differ in a head with a draft vocabulary.
struct Spec {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, outputs = 0;
  float eps = 1e-5f, attention_scale = 1.0f, attention_softcap = 0.0f, final_softcap = 0.0f, embedding_scale = 1.0f;
  bool gelu = false;
  std::vector<Rope> ropes;
  std::vector<int> layer_ropes, layer_windows;
};

struct Layer {
  std::unique_ptr<Weight> q, k, v, o, gate, up, down;
  // Vectors; empty when the model has none.
  std::vector<float> attn_norm, ffn_norm, post_attn_norm, post_ffn_norm, q_norm, k_norm, q_bias, k_bias, v_bias, o_bias;
};

struct Model;

// What makes a model an EAGLE-3 head (eagle3.md): its rows are pairs of a target's state and the embedding of the next
// token. The first layer's q, k and v read 2 * hidden columns: the normed embedding, then the normed state.
struct PairInput {
  int states = 0, state_width = 0;  // captured states per row, and the target's width
  bool norm_before_residual = false, norm_output = false;
  std::shared_ptr<Model> target;  // whose embedding is read when the head has none
  std::unique_ptr<Weight> fc;
  std::vector<float> hidden_norm, input_norm;   // input_norm and state_norms: empty when there are none
  std::vector<std::vector<float>> state_norms;  // one per captured state
  bool normalises() const { return !input_norm.empty() || !state_norms[0].empty(); }
};

// Weights of a model; shared by the executors that run all or some of its layers.
struct Model {
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  Spec spec;
  Arena arena;
  std::vector<Layer> layers;
  std::unique_ptr<Weight> embedding, head;  // head is null when tied, embedding when it is the target's
  std::vector<float> output_norm;
  std::unique_ptr<PairInput> pairs;  // null but in heads
  const Weight& output() const { return head ? *head : *embedding; }
  const Weight& token_table() const { return embedding ? *embedding : *pairs->target->embedding; }
  std::size_t weight_bytes() const;
};

// One forward pass, as executors/base.py describes it. Pointers stay the caller's.
struct Batch {
  int rows = 0, sequences = 0, logit_count = 0;
  const std::int32_t *tokens = nullptr, *sequence = nullptr, *slots = nullptr, *prefix = nullptr;
  const std::int32_t *tail_offsets = nullptr, *tails = nullptr, *block_offsets = nullptr, *blocks = nullptr;
  const std::int32_t* logit_rows = nullptr;
  int tail(int row) const { return tail_offsets[row + 1] - tail_offsets[row]; }
  int position(int row) const { return prefix[row] + tail(row) - 1; }
};

// The residual stream entering some layers, of the rows from `first` on: row first + r's part i is
// out[r][i][0 … hidden). Layer id L, the number of layers that run, is the output of the last one, before the final
// norm (after it in heads that say norm_output). Without layers: nothing.
struct Capture {
  const std::int32_t* layers = nullptr;
  int count = 0;
  float* out = nullptr;
  int first = 0;
  bool has(int layer) const {
    for (int i = 0; i < count; ++i)
      if (layers[i] == layer) return true;
    return false;
  }
};

// The other half of a head's rows; one of the two.
struct Pairs {
  const float* states = nullptr;     // [rows][states * state_width]: the target's, which fc is to project
  const float* projected = nullptr;  // [rows][hidden]: already projected, or what the head itself fed back
};

enum Operator : int { kEmbed, kNorm, kQkv, kRope, kAttention, kOutput, kGateUp, kDown, kHead, kOperators };
extern const char* const kOperatorNames[kOperators];

class Decoder {
 public:
  Decoder(std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool, const KernelTable* kernels, int layers,
          int num_blocks, bool half_cache, int max_rows);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  // logits float32 [logit_count, outputs]; states as Capture says. Heads, and only they, need pairs. When all logits
  // are there, the threads share out read(i) for each of their rows; it must not throw.
  void forward(const Batch& batch, float* logits, const Capture& capture = {}, const Pairs& pairs = {},
               const std::function<void(int)>& read = {});
  // What a head's fc makes of states [rows][states * state_width]: float32 [rows][hidden].
  void project(const float* states, int rows, float* projected);
  void move_slots(const std::int32_t* source, const std::int32_t* destination, int n);
  int num_blocks() const { return num_blocks_; }
  int layers() const { return layers_; }
  int max_rows() const { return max_rows_; }
  std::size_t cache_bytes() const { return cache_bytes_; }
  const std::shared_ptr<Model>& model() const { return model_; }
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }
  const KernelTable& kernels() const { return k_; }
  // Seconds spent by thread 0 in each operator since the last call; measured only while switched on.
  void profile(bool on) { profiling_ = on; }
  std::array<double, kOperators> take_profile();

 private:
  struct Inputs {  // activations of one operator, for one thread or for all
    std::vector<float> floats;
    std::vector<std::int32_t> ints;
    std::vector<std::int8_t> bytes;
    std::vector<ActivationBlock> blocks;
  };
  struct Needs {  // what the weights that read an input ask for
    bool quants = false, values = false;
    unsigned offset_mask = 0;
    void add(const Weight& w);
  };
  struct Item {  // attention work: some heads of a run of rows, one chunk of positions (all when chunk < 0)
    int run, kv_head, head, chunk;
    int share, chunks;  // which of the runs' heads, and how many items they are shared out in
  };
  struct Run {  // consecutive rows of one sequence that attention serves together
    int row, rows;
  };
  struct ThreadState {
    int thread = 0, work = 0;
    float* x = nullptr;        // residual stream, [rows][hidden]; private when rows are replicated
    Inputs* inputs = nullptr;  // likewise
    std::vector<float> own_x, own_rows, row, tile, partial;
    Inputs own_inputs;
    std::chrono::steady_clock::time_point since;
  };

  Needs needs(std::initializer_list<const Weight*> weights) const;
  void plan();
  void plan_rows(int rows);
  void plan_runs();
  void plan_attention();
  void run(const std::function<void(int)>& pass);
  void step(int thread, float* logits, const std::function<void(int)>& read);
  void embed(int row, float* x) const;
  void project_states(ThreadState& s, float* projected);
  void prepare_pair(ThreadState& s, int row, float* out);
  void layer(ThreadState& s, int l);
  void attention(ThreadState& s, int l);
  void attend_run(ThreadState& s, int l, const Item& item);
  void collect(ThreadState& s, int l, const Item& item);
  float* partial_at(int row, int head, int chunk);
  void list_items(int l, std::vector<Item>& items) const;
  void rotate_and_store(const Layer& w, int l, int row, int head);
  void rotary_tables(int begin, int end);
  void absorb(ThreadState& s, int row, const std::vector<float>& post_norm);
  void absorb_into(ThreadState& s, int row, const std::vector<float>& post_norm, float* x);
  void capture(const ThreadState& s, int layer, int row, const float* x) const;
  void capture_last(ThreadState& s);
  void layout(Inputs& in, int rows, int cols);
  void pack(ThreadState& s, const float* x, std::int64_t stride, int cols, const Needs& needs);
  template <typename Function>
  void for_rows(ThreadState& s, int rows, Function&& function);
  void pack_groups(const ActivationBlock& b, const float* x, std::int64_t stride, int begin, int end,
                   const Needs& needs) const;
  void product(ThreadState& s, const Inputs& in, const Weight& w, float* out, std::int64_t stride);
  void gated_product(ThreadState& s, const Layer& w);
  void head(ThreadState& s, float* logits);
  SharedWork& next_work(ThreadState& s);
  void sync(ThreadState& s, Operator op);
  void warm(const ThreadState& s, const Weight& w) const;
  AttentionTask task(int l, const Item& item) const;
  int heads_per_task() const;
  int first_visible(int l, int row) const;
  CacheView cache(int l) const;

  std::shared_ptr<Model> model_;
  std::shared_ptr<ThreadPool> pool_;
  const KernelTable& k_;
  const int layers_, num_blocks_, max_rows_;
  const bool half_cache_;
  int padded_dim_ = 0, qkv_width_ = 0, widest_ = 0, rope_width_ = 0;
  std::vector<int> rope_offsets_;  // of each rope in a row of the rotary tables
  std::size_t cache_bytes_ = 0;
  Arena cache_arena_;
  std::vector<void*> keys_, values_;

  Batch batch_;
  Capture capture_;
  Pairs pairs_;
  bool reads_last_ = true;  // somebody wants what the last layer gives, not only its keys and values
  int active_ = 1;  // threads of this pass
  Crowding crowding_;
  bool split_ = false;       // attention is shared out by chunks, and merged by who does the last of them
  std::vector<std::atomic<int>> chunks_done_;  // per share, then
  bool replicated_ = false;  // each thread prepares all rows for itself: no barrier, for a few rows
  std::vector<ThreadState> threads_;
  std::vector<SharedWork> work_;
  Inputs shared_inputs_, gated_inputs_;  // the latter: what `down` reads, packed by whoever made it
  std::vector<float> x_, rows_, qkv_, y_, attended_, cosine_, sine_, partials_, projected_;
  std::vector<Run> runs_;
  std::vector<std::vector<Item>> items_;  // per distinct window
  std::vector<int> layer_items_;
  int most_chunks_ = 0;
  bool profiling_ = false;
  std::array<double, kOperators> seconds_{};
};

// Rows 0 … rows-1: every thread all of them when replicated, else its share followed by a barrier.
template <typename Function>
void Decoder::for_rows(ThreadState& s, int rows, Function&& function) {
  const int threads = active_;
  const int begin = replicated_ ? 0 : static_cast<int>(static_cast<std::int64_t>(rows) * s.thread / threads);
  const int end = replicated_ ? rows : static_cast<int>(static_cast<std::int64_t>(rows) * (s.thread + 1) / threads);
  for (int r = begin; r < end; ++r) function(r);
  if (!replicated_) sync(s, kNorm);
}

}  // namespace paceline
