// The team of threads: every task runs once, whoever takes it; made to run under -fsanitize=thread.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "team.h"

extern "C" int onechip_set_threads(int count);

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "test_team: %s\n", what);
  std::exit(1);
}

void every_task_runs_once(size_t count) {
  std::vector<int> runs(count);  // not atomic: two threads at one task, or a return too early, is a race
  onechip::Team::get().run(count, [&](size_t index, int thread) {
    check(thread >= 0 && thread < onechip::Team::get().size(), "a thread's number is out of range");
    ++runs[index];
  });
  for (const int n : runs) check(n == 1, "a task did not run exactly once");
}

// A thread begins with its own part of the tasks: all are held in their first until each has one.
void each_thread_begins_with_its_own() {
  constexpr size_t kEach = 25;
  const size_t size = static_cast<size_t>(onechip::Team::get().size());
  std::vector<std::atomic<bool>> began(size);
  std::atomic<size_t> here = 0;
  onechip::Team::get().run(size * kEach, [&](size_t index, int thread) {
    if (began[static_cast<size_t>(thread)].exchange(true)) return;
    check(index == static_cast<size_t>(thread) * kEach, "a thread did not begin with its own tasks");
    ++here;
    while (here < size) std::this_thread::yield();
  });
}

// Each job has its own variables on the stack, which a helper that is late must not touch.
void jobs_follow_each_other() {
  for (int job = 0; job < 20000; ++job) {
    const size_t count = 1 + job % 7;
    std::vector<int> sums(count);
    onechip::Team::get().run(count, [&, job](size_t index, int) { sums[index] += job; });
    for (const int sum : sums) check(sum == job, "a task ran with the variables of another job");
  }
}

void helpers_wake_up() {
  for (int pause_us = 0; pause_us < 400; pause_us += 10) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    every_task_runs_once(5);
  }
  // A task that waits until each thread has one: it ends only if helpers were woken.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int size = onechip::Team::get().size();
  std::atomic<int> here = 0;
  onechip::Team::get().run(size, [&](size_t, int) {
    ++here;
    while (here < size) std::this_thread::yield();
  });
}

// The caller sleeps until a helper that is slow has ended its task. Both tasks may go to helpers; a caller that has one
// keeps it until a helper has the other.
void slow_tasks_are_waited_for() {
  std::atomic<bool> began = false, ended = false;
  onechip::Team::get().run(2, [&](size_t, int thread) {
    if (thread == 0) {
      while (!began) std::this_thread::yield();
      return;
    }
    began = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ended = true;
  });
  check(ended, "a helper's task was not waited for");
}

void callers_take_turns() {
  std::atomic<int> running = 0;
  const auto call = [&] {
    for (int i = 0; i < 2000; ++i) {
      std::atomic<int> mine = 0;
      onechip::Team::get().run(4, [&](size_t, int) { ++mine; });
      check(mine == 4, "a call returned before its tasks had ended");
    }
    ++running;
  };
  std::thread a(call), b(call), c(call);
  a.join();
  b.join();
  c.join();
}

void scratch_is_kept_and_grows() {
  onechip::Team::get().run(64, [](size_t index, int) {
    for (const size_t bytes : {size_t{1}, 1000 * (index + 1), size_t{3} << 20}) {
      void* memory = onechip::scratch(3, bytes);
      check(reinterpret_cast<uintptr_t>(memory) % 64 == 0, "scratch memory is not aligned");
      std::memset(memory, static_cast<int>(index), bytes);
      check(memory != onechip::scratch(4, 1), "two slots share memory");
      check(memory == onechip::scratch(3, bytes), "scratch memory was not kept");
    }
  });
}

}  // namespace

int main() {
  check(onechip_set_threads(4) == 1, "the number of threads could not be set");
  check(onechip::Team::get().size() == 4, "the team has another size than was asked for");
  check(onechip_set_threads(2) == 0, "the size of a running team was changed");
  for (const size_t count : {0, 1, 2, 3, 1000}) every_task_runs_once(count);
  each_thread_begins_with_its_own();
  jobs_follow_each_other();
  helpers_wake_up();
  slow_tasks_are_waited_for();
  callers_take_turns();
  scratch_is_kept_and_grows();
  std::puts("test_team: ok");
}
