// A team of threads of our own, since a kernel has several phases, and XLA's pool has no way to wait for one.
//
// The caller works too, and waits for tasks, not for threads: whatever nobody has taken it does itself, so a helper
// that the system keeps from running delays nothing unless it holds a task. After a fork, which leaves the child no
// helpers, the caller does all.

#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace onechip {
namespace {

using Task = std::function<void(size_t index, int thread)>;

// How long a thread looks for work, or for the end of it, before it sleeps. The kernels of a decode step follow each
// other within less; a wake-up costs about as much.
constexpr auto kSpin = std::chrono::microseconds(80);

template <typename Condition>
bool spin_until(const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (holds()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return holds();
}

// Consecutive tasks of a job, those of one thread, which takes them in order: a thread that reads on where it stopped
// keeps the processor's own prefetching going (two threads in turns of 32 KiB read 31 GB/s, each by itself 35). Who has
// none left takes from the others.
//
// `ticket` has the job's number in its upper half and in its lower the number of tasks that nobody has taken. A thread
// takes one by exchanging the ticket that it saw for the next. That fails once another job runs, so a thread that was
// kept from running meanwhile cannot take a task of one job for a task of another.
struct alignas(64) Share {
  std::atomic<uint64_t> ticket = 0;
};

struct State {
  std::mutex busy;
  int size = 1;

  std::atomic<const Task*> task = nullptr;
  std::atomic<uint32_t> count = 0;
  std::unique_ptr<Share[]> shares;
  alignas(64) std::atomic<uint32_t> job = 0;
  alignas(64) std::atomic<uint32_t> unfinished = 0;

  alignas(64) std::atomic<uint32_t> sleepers = 0;
  std::atomic<uint32_t> wakes = 0;

  // Where the tasks of a thread begin.
  uint32_t begin(int thread) const {
    return static_cast<uint32_t>(uint64_t{count} * static_cast<uint32_t>(thread) / static_cast<uint32_t>(size));
  }
};

// Tasks of the job, this thread's own before the others', until none is left.
void work(State& state, int thread) {
  uint32_t done = 0;
  for (int other = 0; other < state.size; ++other) {
    const int owner = (thread + other) % state.size;
    std::atomic<uint64_t>& ticket = state.shares[owner].ticket;
    uint64_t seen = ticket.load();
    while (const auto left = static_cast<uint32_t>(seen)) {
      const Task* task = state.task.load();
      const uint32_t end = state.begin(owner + 1);
      if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
      (*task)(end - left, thread);
      ++done;
      seen = ticket.load();
    }
  }
  if (done != 0 && state.unfinished.fetch_sub(done) == done) state.unfinished.notify_one();
}

[[noreturn]] void help(State& state, int thread) {
  for (uint32_t seen = 0;;) {
    const auto more = [&] { return state.job.load() != seen; };
    if (!spin_until(more)) {
      state.sleepers.fetch_add(1);
      const uint32_t wakes = state.wakes.load();
      // `run` publishes its job, then looks for sleepers: one of the two sees the other.
      if (!more()) state.wakes.wait(wakes);
      state.sleepers.fetch_sub(1);
      continue;
    }
    seen = state.job.load();
    work(state, thread);
  }
}

// Cores that this process may use: of hardware threads that share one, the first, if Linux tells.
int usable_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string name = "cpu" + std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : name);
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

std::atomic<int> wanted_size = 0;
std::atomic<int> most_size = INT_MAX;
std::atomic<bool> started = false;

struct Start {
  State* state;
  int thread;
};

void* begin(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  help(*start.state, start.thread);
}

State* start() {
  started = true;
  auto* state = new State;
  const int size = wanted_size > 0 ? wanted_size.load() : std::min(usable_cores(), most_size.load());
  state->shares = std::make_unique<Share[]>(static_cast<size_t>(size));
  sigset_t all, before;  // signals are for the threads of the program
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (; state->size < size; ++state->size) {
    auto* argument = new Start{state, state->size};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, begin, argument) != 0) {  // a limit of the system: a smaller team
      delete argument;
      break;
    }
    pthread_setname_np(thread, "onechip");
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return state;
}

// Never freed: helpers look at it until the process ends.
State& shared() {
  static State* state = start();
  return *state;
}

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "onechip: %s\n", what);
  std::abort();
}

constexpr int kSlots = 16;
constexpr size_t kHugePage = size_t{2} << 20;

struct Scratch {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Scratch() { std::free(memory); }
};

}  // namespace

Team& Team::get() {
  static Team team;
  shared();
  return team;
}

int Team::size() const { return shared().size; }

void Team::run(size_t count, const Task& task) {
  if (count > UINT32_MAX) die("more tasks than a team can count");
  State& state = shared();
  const std::lock_guard<std::mutex> lock(state.busy);
  if (count <= 1 || state.size == 1) {
    for (size_t index = 0; index < count; ++index) task(index, 0);
    return;
  }
  state.task = &task;
  state.count = static_cast<uint32_t>(count);
  state.unfinished = static_cast<uint32_t>(count);
  const uint32_t job = state.job.load() + 1;
  for (int thread = 0; thread < state.size; ++thread) {
    state.shares[thread].ticket = uint64_t{job} << 32 | (state.begin(thread + 1) - state.begin(thread));
  }
  state.job = job;
  if (state.sleepers != 0) {
    state.wakes.fetch_add(1);
    state.wakes.notify_all();
  }
  work(state, 0);
  if (spin_until([&] { return state.unfinished == 0; })) return;
  while (const uint32_t left = state.unfinished) state.unfinished.wait(left);
}

void* scratch(int slot, size_t bytes) {
  thread_local Scratch slots[kSlots];
  if (slot < 0 || slot >= kSlots) die("a slot of scratch memory that does not exist");
  Scratch& held = slots[slot];
  if (held.bytes >= bytes && held.memory != nullptr) return held.memory;
  std::free(held.memory);
  const size_t step = bytes < kHugePage ? 4096 : kHugePage;
  held.bytes = (bytes / step + 1) * step;
  held.memory = std::aligned_alloc(step, held.bytes);
  if (held.memory == nullptr) die("no memory for temporaries");
  if (step == kHugePage) madvise(held.memory, held.bytes, MADV_HUGEPAGE);
  return held.memory;
}

}  // namespace onechip

// Sets the number of threads, which must happen before the team's first use; returns 0 if it came too late.
extern "C" int onechip_set_threads(int count) {
  if (onechip::started) return 0;
  onechip::wanted_size = count;
  return 1;
}

// No more threads than this unless more are asked for; before the team's first use.
extern "C" void onechip_limit_threads(int count) { onechip::most_size = count; }

// The number of threads; starts the team.
extern "C" int onechip_threads() { return onechip::Team::get().size(); }
