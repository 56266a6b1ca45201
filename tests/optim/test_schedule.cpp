// Learning-rate schedules against their closed forms, above all at the edges: first step, end of warm-up, last step,
// after it, no warm-up, a run of one step.
#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <numbers>

#include "optim/schedule.h"

namespace trencadis {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine};

Schedule schedule(ScheduleKind kind, int64_t warmup, int64_t max_steps) {
  return {.kind = kind, .lr = 0.5, .min_lr = 0.125, .warmup_steps = warmup, .max_steps = max_steps};
}

TEST_CASE("warm-up rises in equal steps from lr/(w+1), and the step after it has the full rate") {
  for (const ScheduleKind kind : kKinds) {
    const Schedule s = schedule(kind, 3, 13);
    CHECK(s.at(0) == doctest::Approx(0.5 * 1 / 4));
    CHECK(s.at(1) == doctest::Approx(0.5 * 2 / 4));
    CHECK(s.at(2) == doctest::Approx(0.5 * 3 / 4));
    CHECK(s.at(3) == 0.5f);
  }
}

TEST_CASE("after the warm-up: each kind's closed form") {
  for (int64_t step = 3; step <= 13; ++step) {
    const double p = static_cast<double>(step - 3) / 10;
    CHECK(schedule(ScheduleKind::constant, 3, 13).at(step) == 0.5f);
    CHECK(schedule(ScheduleKind::linear, 3, 13).at(step) == doctest::Approx(0.5 - 0.375 * p));
    CHECK(schedule(ScheduleKind::cosine, 3, 13).at(step) ==
          doctest::Approx(0.125 + 0.375 * (1 + std::cos(std::numbers::pi * p)) / 2));
  }
  CHECK(schedule(ScheduleKind::cosine, 3, 13).at(8) == doctest::Approx((0.5 + 0.125) / 2));  // half way
}

TEST_CASE("at the end and after it the rate is min_lr; a constant one stays") {
  for (const int64_t step : {13, 14, 1000000}) {
    CHECK(schedule(ScheduleKind::constant, 3, 13).at(step) == 0.5f);
    CHECK(schedule(ScheduleKind::linear, 3, 13).at(step) == doctest::Approx(0.125));
    CHECK(schedule(ScheduleKind::cosine, 3, 13).at(step) == doctest::Approx(0.125));
  }
}

TEST_CASE("no warm-up starts with the full rate") {
  for (const ScheduleKind kind : kKinds) CHECK(schedule(kind, 0, 10).at(0) == 0.5f);
}

TEST_CASE("a run of one step uses the full rate, with a warm-up as long as the run half of it") {
  for (const ScheduleKind kind : kKinds) {
    CHECK(schedule(kind, 0, 1).at(0) == 0.5f);
    CHECK(schedule(kind, 1, 1).at(0) == 0.25f);
  }
}

TEST_CASE("a warm-up longer than the run keeps rising to its end") {
  for (const ScheduleKind kind : kKinds)
    for (int64_t step = 1; step < 7; ++step) CHECK(schedule(kind, 7, 3).at(step) > schedule(kind, 7, 3).at(step - 1));
}

TEST_CASE("no schedule rises after the warm-up or leaves [min_lr, lr]") {
  for (const ScheduleKind kind : kKinds) {
    const Schedule s = schedule(kind, 5, 100);
    for (int64_t step = 6; step < 110; ++step) {
      CHECK(s.at(step) <= s.at(step - 1));
      CHECK(s.at(step) >= 0.125f);
      CHECK(s.at(step) <= 0.5f);
    }
  }
}

}  // namespace
}  // namespace trencadis
