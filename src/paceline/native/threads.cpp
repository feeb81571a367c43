#include "threads.hpp"

#include <chrono>
#include <ctime>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif

namespace paceline {
namespace {

// A barrier whose threads all run is over in a microsecond or two; between two passes Python needs a few hundred. Both
// waits are far shorter than the time slice of a thread that does not run.
constexpr int kBarrierSpins = 1500;
constexpr int kIdleSpins = 12000;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// std::atomic::wait of libstdc++ calls sched_yield a few times before it sleeps, and each call may give away a
// whole time slice, at every barrier: with a busy process on each core (Linux 6.18) one step in fifty took 100 to
// 270 ms instead of 7 (benchmarks/busy_cores.py). So we sleep directly where we can.
#if defined(__linux__)
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t old) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
#else
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t old) { word.wait(old); }
void wake_all(std::atomic<std::uint32_t>& word) { word.notify_all(); }
#endif

}  // namespace

// Either the waker sees the sleeper, or the sleeper, who counts itself before it looks again, sees the new value:
// both are sequentially consistent.
void Gate::advance() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) wake_all(value_);
}

void Gate::wait_while(std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value() != old) return;
    relax();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) sleep_while(value_, old);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Barrier::wait() {
  if (threads_ == 1) return;
  const std::uint32_t phase = phase_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.advance();
  } else {
    phase_.wait_while(phase, kBarrierSpins);
  }
}

double thread_seconds() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#else
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

void Crowding::judge(double seconds, double running_seconds) {
  if (!alone_) {
    const bool crowded = running_seconds < 0.7 * seconds;
    clean_ = crowded ? 0 : clean_ + 1;
    strikes_ = crowded ? strikes_ + 1 : 0;
    if (clean_ >= 4 * kShortest) patience_ = kShortest;
    if (strikes_ < 2) return;
    alone_ = true;
  } else {
    seconds_ += seconds;
    running_ += running_seconds;
    if (++passes_ < patience_) return;
    if (running_ > 0.95 * seconds_) {  // nobody else wanted this processor: try all again, on one strike's trust
      alone_ = false;
      strikes_ = 1;
      patience_ = patience_ * 2 < kLongest ? patience_ * 2 : kLongest;
    }
  }
  passes_ = clean_ = 0;
  seconds_ = running_ = 0.0;
}

ThreadPool::ThreadPool(int threads) : threads_(threads), barrier_(threads) {
  for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  start_.advance();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    start_.wait_while(seen, kIdleSpins);
    seen = start_.value();
    if (stop_) return;
    (*function_)(thread);
    barrier_.wait();
  }
}

void ThreadPool::run_alone(const std::function<void(int)>& function) {
  barrier_.expect(1);
  function(0);
}

void ThreadPool::run(const std::function<void(int)>& function) {
  barrier_.expect(threads_);
  function_ = &function;
  start_.advance();
  function(0);
  barrier_.wait();
}

}  // namespace paceline
