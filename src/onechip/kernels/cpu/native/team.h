// A team of threads that work through numbered tasks together.
#pragma once

#include <cstddef>
#include <functional>

namespace onechip {

class Team {
 public:
  // The process's team: as many threads as the process may use cores, or as onechip_set_threads said before the first
  // use; the caller is one of them.
  static Team& get();

  int size() const;

  // Runs task(index, thread) for each index below `count`, and returns when all have ended. Each thread takes
  // consecutive tasks, then those that others have left. Thread is 0..size()-1, and tells scratch memory apart. One
  // call at a time: a second caller waits.
  void run(size_t count, const std::function<void(size_t index, int thread)>& task);
};

// 64-byte aligned memory of this thread that grows and is kept: for temporaries, which would be page-faulted anew at
// each call otherwise. `slot` tells several apart.
void* scratch(int slot, size_t bytes);

}  // namespace onechip
