// How a caller and its helpers share a job: each begins with a part of its own, always the same, so that what it reads
// stays in its caches; who is done early takes of the others' parts. Nobody waits for a helper that has not begun; for
// one that was interrupted since, the caller does, and leaves it alone for a while.
#include "crew.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tiles.h"

namespace specmt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr auto kAwake = microseconds(200);       // that a helper looks out for the next job before it sleeps
constexpr auto kLate = microseconds(100);        // or as long as its own work took: so late is a helper held up
constexpr auto kAmong = microseconds(10'000);    // without help after another caller was there
constexpr auto kShy = microseconds(1'000);       // without help after it was of no use; twice that the next time, …
constexpr auto kShyest = microseconds(500'000);  // … up to this: on a busy machine
constexpr int kTrial = 64;                       // jobs over which one sees of how much use it is
constexpr int kLooks = 64;                       // between looks at the clock

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `ready` says so, for `most` at the longest; whether it did.
template <class Ready>
bool look_out(const Ready& ready, Clock::duration most) {
  const Clock::time_point end = Clock::now() + most;
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return ready();  // the clock may have run on while this thread did not
}

// How many forks lie between the process that loaded this and the present one, to which helpers do not come along.
std::atomic<int> forks{0};
[[maybe_unused]] const int counted = pthread_atfork(nullptr, nullptr, [] { ++forks; });

// While it lives, threads begin without signals, which are for those that were there; but for those of their own
// faults.
struct Masked {
  sigset_t before;

  Masked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~Masked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};

}  // namespace

struct Crew::State {
  struct alignas(64) Part {
    std::atomic<int> next{0};
    int end = 0;
  };

  const int born = forks;
  std::vector<Part> parts;  // of the job: the caller's, then a helper's each
  Job job{};
  Clock::duration shy = kShy;
  int tried = 0;                               // jobs since the trial began
  alignas(64) std::atomic<uint64_t> round{0};  // odd: there is a job
  alignas(64) std::atomic<int> inside{0};      // helpers that may be at it
  std::atomic<int> helped{0};                  // how often a helper had a piece of one of them
  alignas(64) std::atomic<int> callers{0};
  std::atomic<Clock::rep> alone_until{0};  // 0: not alone

  std::mutex mutex;  // of what follows
  std::condition_variable wanted;
  std::atomic<int> sleeping{0};
  uint64_t wakes = 0;
  bool ended = false;

  explicit State(int members) : parts(members) {}

  void leave_alone(Clock::duration pause) { alone_until = (Clock::now() + pause).time_since_epoch().count(); }

  bool is_left_alone() {
    const Clock::rep until = alone_until;
    if (!until) return false;
    if (Clock::now().time_since_epoch().count() < until) return true;
    alone_until = 0;
    return false;
  }

  // Of no use are helpers for whom the processor has no time: they are late, or come when all is done.
  void judge(bool late) {
    if (!late && ++tried < kTrial) return;
    if (late || 2 * helped < kTrial) {
      leave_alone(shy);
      shy = std::min<Clock::duration>(2 * shy, kShyest);
    } else {
      shy = std::max<Clock::duration>(shy / 2, kShy);
    }
    tried = helped = 0;
  }

  // Does pieces until there are none left; whether there were any.
  bool work(int member) {
    const int members = int(parts.size());
    bool did = false;
    for (int i = 0; i < members; ++i) {
      Part& part = parts[(member + i) % members];
      for (int place; (place = part.next++) < part.end; did = true) job.run(job.work, place, place + 1);
    }
    return did;
  }

  void help(int member) {
    uint64_t done = 0;
    const auto is_new = [&] { return round.load() % 2 && round.load() != done; };
    while (look_out(is_new, kAwake) || sleep()) {
      const uint64_t current = round.load();
      ++inside;
      if (current % 2 && round.load() == current && work(member)) ++helped;
      --inside;
      done = current;
    }
  }

  // Until there is a job; false: until the end.
  bool sleep() {
    leave_tiles();
    std::unique_lock<std::mutex> lock(mutex);
    const uint64_t before = wakes;
    ++sleeping;
    wanted.wait(lock, [&] { return ended || wakes != before; });
    return !ended;
  }

  void wake(bool end) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ++wakes;
      ended |= end;
    }
    wanted.notify_all();
  }
};

// Helpers are detached, and keep the state: after a fork nobody could wait for them.
Crew::Crew(int helpers) {
  if (helpers < 1) return;
  state_ = std::make_shared<State>(helpers + 1);
  const Masked masked;
  try {
    for (int member = 1; member <= helpers; ++member)
      std::thread([state = state_, member] { state->help(member); }).detach();
  } catch (const std::exception&) {  // no more threads: the callers do what the others would have done
  }
}

Crew::~Crew() {
  if (state_ && state_->born == forks) state_->wake(true);
}

void Crew::enter() {
  if (state_ && state_->callers++) state_->leave_alone(kAmong);
}

void Crew::leave() {
  if (state_) --state_->callers;
}

bool Crew::helps() const { return state_ && state_->callers == 1 && state_->born == forks && !state_->is_left_alone(); }

void Crew::perform(const Job& job) {
  State& state = *state_;
  if (state.sleeping && state.sleeping.exchange(0)) state.wake(false);
  state.job = job;
  const int members = int(state.parts.size());
  for (int member = 0; member < members; ++member) {
    state.parts[member].next = int(int64_t(job.count) * member / members);
    state.parts[member].end = int(int64_t(job.count) * (member + 1) / members);
  }
  const Clock::time_point begun = Clock::now();
  ++state.round;
  state.work(0);
  ++state.round;
  const auto is_done = [&] { return state.inside == 0; };
  const bool late = !look_out(is_done, std::max<Clock::duration>(kLate, Clock::now() - begun));
  while (late && !is_done()) std::this_thread::yield();
  state.judge(late);
}

}  // namespace specmt
