// Three spirals of points, told apart by a small network that some ranks train together, in any ZeRO stage.
//   spirals STAGE STEPS FOLDER [THREADS]   goes on from what FOLDER holds; ranks are mpirun's processes, or threads
#include <cmath>

#include "dist/mpi/mpi_communicator.h"
#include "dist/thread/thread_communicator.h"
#include "layers/layers.h"
#include "runtime/cpu/backend.h"
#include "zero/checkpoint/checkpoints.h"
using namespace trencadis;

// [model]
struct Net : UnitModule {
  Linear fc1{2, 32}, fc2{32, 32}, fc3{32, 3};

  Net() {
    add_unit("fc1", fc1);
    add_unit("fc2", fc2);
    add_unit("fc3", fc3);
  }

  Variable forward(const Variable& x) const { return run(fc3, relu(run(fc2, relu(run(fc1, x))))); }  // (n, 2) -> (n, 3)
};
// [end]
// [train]
void train(int stage, int64_t steps, const std::string& folder, Communicator& world) {
  Context context(make_cpu_backend());
  Net model;
  ZeroEngine engine(context, {&world}, model, make_adamw({}), {.stage = stage});
  Checkpoints checkpoints(folder, engine, world);
  const auto saved = checkpoints.load();
  for (int64_t step = saved ? saved->step : 0; step < steps; ++step) {
    constexpr int64_t kRows = 48;  // of a micro-batch; each rank takes its own
    std::vector<float> points;
    std::vector<int32_t> arms;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t n = (step * world.size() + world.rank()) * kRows + row;
      const double u = 3 * std::fmod(static_cast<double>(n) * 0.618034, 1);  // how far out
      const double angle = 2 * u + static_cast<double>(n % 3) * 2.0944;
      points.insert(points.end(), {static_cast<float>(u * std::cos(angle)), static_cast<float>(u * std::sin(angle))});
      arms.push_back(static_cast<int32_t>(n % 3));
    }
    engine.micro_batch(kRows, [&](const Tensor& totals) {
      const Variable logits = model.forward(Variable(Tensor::from(context, points, {kRows, 2})));
      return softmax_cross_entropy(logits, Tensor::from(context, arms, {kRows}), totals);
    });
    const StepResult result = engine.step(/*lr=*/1e-2f);
    if ((step + 1) % 100 == 0 && world.rank() == 0) fmt::print("step {} | loss {:.4f}\n", step + 1, result.loss);
  }
  checkpoints.save(steps);
  if (const uint32_t digest = engine.digest(); world.rank() == 0) fmt::print("digest {:08X}\n", digest);
}
// [end]
int main(int argc, char** argv) try {
  if (argc < 4) return fmt::print(stderr, "usage: spirals STAGE STEPS FOLDER [THREADS]\n"), 2;
  const auto run = [&](Communicator& world) { train(std::stoi(argv[1]), std::stoi(argv[2]), argv[3], world); };
  argc > 4 ? run_on_threads(std::stoi(argv[4]), run) : run_on_mpi(run);
} catch (const std::exception& error) {
  return fmt::print(stderr, "spirals: {}\n", error.what()), 1;
}
