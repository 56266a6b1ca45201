// Tracer: off it keeps nothing, on it keeps what streams did under its name, and waits that took time.
#include <thread>

#include "runtime/context.h"
#include "runtime/cpu/backend.h"
#include "runtime/trace.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;
using namespace std::chrono_literals;

namespace {

const Tracer::Span* find(const std::vector<Tracer::Span>& spans, const std::string& name) {
  for (const Tracer::Span& span : spans)
    if (span.name == name) return &span;
  return nullptr;
}

}  // namespace

TEST_CASE("trace: streams record what ran on them, and who waited for it") {
  Context context(make_cpu_backend());
  auto worker = context.make_stream("comm");
  Stream& compute = context.compute_stream();
  worker->enqueue("before", [] {});
  worker->synchronize();
  CHECK(context.tracer().take().empty());  // off

  context.tracer().start();
  worker->enqueue("slow copy", [] { std::this_thread::sleep_for(20ms); });
  const Event event = worker->record();
  compute.wait(event);
  compute.enqueue("sum", [] {});
  const std::vector<Tracer::Span> spans = context.tracer().take();
  const Tracer::Span *copy = find(spans, "slow copy"), *wait = find(spans, "wait for slow copy"),
                     *sum = find(spans, "sum");
  REQUIRE(copy);
  REQUIRE(wait);
  REQUIRE(sum);
  CHECK(spans.size() == 3);
  CHECK(copy->lane == "comm");
  CHECK(wait->lane == "compute");
  CHECK(copy->end - copy->begin >= 20ms);
  CHECK(copy->end <= wait->end);
  CHECK(wait->end <= sum->begin);

  // A wait for what has happened takes no time and is no span; one stream waits for another on its own lane.
  compute.wait(event);
  auto other = context.make_stream("other");
  worker->enqueue("slow again", [] { std::this_thread::sleep_for(20ms); });
  other->wait(worker->record());
  other->synchronize();
  const std::vector<Tracer::Span> more = context.tracer().take();
  REQUIRE(find(more, "wait for slow again"));
  CHECK(find(more, "wait for slow again")->lane == "other");
  CHECK(more.size() == 2);

  context.tracer().stop();
  compute.enqueue("after", [] {});
  CHECK(context.tracer().take().empty());
}

TEST_CASE("trace: a full tracer counts what it drops, a scope names itself at its end") {
  Tracer tracer;
  bool named = false;
  const std::string lane = "compute";
  const auto name = [&] {
    named = true;
    return std::string("block");
  };
  { const TraceScope scope(tracer, lane, name); }
  CHECK_FALSE(named);
  tracer.start(/*most=*/2);
  for (int i = 0; i < 5; ++i) const TraceScope scope(tracer, lane, name);
  CHECK(named);
  CHECK(tracer.dropped() == 3);
  const std::vector<Tracer::Span> spans = tracer.take();
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].end <= spans[1].begin);
  CHECK(spans[1].name == "block");
}
