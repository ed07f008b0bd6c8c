// Threads that lend a hand to a lone caller.
//
// Several threads may be in calls at once, a sentence's or a batch's each; then every one does its own work. Where only
// one is, what is much of its work is shared out: a helper halves the time of the arithmetic, and does more for the
// wait for weights, because each core keeps its own share of them in its caches.
#pragma once

#include <atomic>
#include <memory>

namespace specmt {

// Work that can be done in pieces, in any order and by several threads at a time: run(work, begin, end).
struct Job {
  void (*run)(const void* work, int begin, int end);
  const void* work;
  int count;
};

class Crew {
 public:
  // Of as many threads besides the caller's; of fewer, where they cannot be had.
  explicit Crew(int helpers);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // While it lives, its thread is in a call.
  class Call {
   public:
    explicit Call(Crew& crew) : crew_(crew) { crew_.enter(); }
    ~Call() { crew_.leave(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Crew& crew_;
  };

  // Does [0, count) by calls of work(begin, end), one by one if helpers take part. To be called in a call.
  template <class Work>
  void share(int count, const Work& work) {
    if (!helps()) return work(0, count);
    perform({[](const void* of, int begin, int end) { (*static_cast<const Work*>(of))(begin, end); }, &work, count});
  }

 private:
  struct State;

  void enter();
  void leave();
  bool helps() const;
  void perform(const Job& job);

  std::shared_ptr<State> state_;  // null: no helpers
};

}  // namespace specmt
