#include "models/report/recorder.h"

#include <fmt/format.h>

#include <filesystem>

#include "dist/on_all_ranks.h"
#include "models/report/chrome_trace.h"

namespace trencadis {

namespace {
constexpr int kKeptBins = 1000;  // of memory, in timeline.json
constexpr size_t kKeptSpans = 20'000;
}  // namespace

Recorder::Recorder(Context& context, Communicator& world, std::string folder, std::string trace, int64_t steps,
                   size_t most_events)
    : context_(context),
      world_(world),
      folder_(std::move(folder)),
      trace_(std::move(trace)),
      kept_(std::min(kKeptStep, std::max<int64_t>(1, steps))),
      most_events_(most_events),
      most_(most_events / static_cast<size_t>(world.size())) {}

void Recorder::start() {
  world_.barrier({"common start of the clocks", Traffic::other});
  zero_ = Tracer::Clock::now();
  if (!trace_.empty()) record(true);
}

void Recorder::record(bool on) {
  if (on == recording_) return;
  recording_ = on;
  if (on) {
    live_ = context_.memory().start_timeline();
    context_.tracer().start();
    // What is in force from here on, if nothing changes.
    const Timeline::Sample sample = {std::chrono::nanoseconds(Tracer::Clock::now() - zero_).count(), live_};
    window_.samples.push_back(sample);
    whole_.samples.push_back(sample);
  } else {
    context_.tracer().stop();
    context_.memory().take_timeline();
  }
}

void Recorder::begin_step() {
  ++step_;
  if (near_kept_step() && !kept_written_) record(true);
  step_begin_ = Tracer::Clock::now();
}

void Recorder::end_step(int64_t number) {
  if (step_ == kept_) kept_number_ = number;
  if (!recording_) return;
  context_.tracer().add(context_.compute_stream().name(), fmt::format("step {}", number), step_begin_,
                        Tracer::Clock::now());
  drain();
  if (step_ == kept_ + 1) write_kept_step();
  if (kept_written_ && (trace_.empty() || full_)) record(false);
}

void Recorder::drain() {
  Timeline piece;
  piece.append(context_.tracer().take(), context_.memory().take_timeline(/*keep_recording=*/true), zero_, live_);
  if (!kept_written_) window_.append(piece);
  if (trace_.empty() || full_) return;
  if (whole_.events() + piece.events() > most_)
    full_ = true;
  else
    whole_.append(piece);
}

void Recorder::write_kept_step() {
  if (kept_written_ || kept_number_ == 0) return;
  kept_written_ = true;
  Timeline step;
  if (const Timeline::Span* span = window_.find(fmt::format("step {}", kept_number_))) {
    step = window_.between(span->begin, span->end);
    step.samples = thin(step.samples, span->begin, span->end, kKeptBins);
    if (step.spans.size() > kKeptSpans)  // the last ones, with the step's own
      step.spans.erase(step.spans.begin(), step.spans.end() - static_cast<int64_t>(kKeptSpans));
  }
  window_ = {};
  const std::vector<std::string> texts = exchange_texts(world_, to_json(step));
  if (world_.rank() == 0) write_file(folder_ + "/timeline.json", step_file(kept_number_, texts));
}

std::string Recorder::finish() {
  if (recording_) drain();
  write_kept_step();
  record(false);
  if (trace_.empty()) return "";
  std::vector<Timeline> ranks;
  bool any_full = false;
  for (const std::string& text : exchange_texts(world_, fmt::format("{}{}", full_ ? 1 : 0, to_json(whole_)))) {
    any_full |= text[0] == '1';
    if (world_.rank() == 0) ranks.push_back(timeline_from_json(text.substr(1)));
  }
  const std::string note =
      any_full ? fmt::format("it stops after about {} events, before the run's end", most_events_) : "";
  if (world_.rank() == 0) write_chrome_trace(trace_, ranks, 0, note);
  return fmt::format("trace: {} (open it in ui.perfetto.dev){}", trace_, note.empty() ? "" : "; " + note);
}

std::string Recorder::finish_alone() {
  if (recording_) drain();
  record(false);
  if (trace_.empty() || world_.rank() != 0) return "";
  write_chrome_trace(trace_, {whole_}, 0, "the run ended by an error: this is rank 0 alone");
  return "trace: " + trace_ + " (rank 0 alone: the run ended by an error)";
}

}  // namespace trencadis
