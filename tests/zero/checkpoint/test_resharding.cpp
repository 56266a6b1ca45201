// A checkpoint of any W and stage, loaded at any other: every value and moment has the same bits, and training goes on
// as if it had never stopped. Ranks are threads; rank 0 writes the index, as the trainer does.
#include <mutex>

// The project's headers first, see temp_folder.h.
// clang-format off
#include "zero/checkpoint/shards.h"
#include "../training.h"
#include "../../models/temp_folder.h"
// clang-format on

namespace trencadis::test {

namespace {

constexpr int kMicroBatches = 12;  // W * ga of every run: a step is the same for all of them
constexpr int kSteps = 3, kMore = 2;

struct Layout {
  int world, stage;
};

std::vector<Layout> layouts() {
  if (kReduced) return {{1, 0}, {2, 1}, {3, 3}, {4, 0}};
  std::vector<Layout> all = {{2, 1}, {2, 2}, {12, 3}};
  for (int world : {1, 2, 3, 4})
    for (int stage : {0, 3}) all.push_back({world, stage});
  return all;
}

Config config_of(Layout layout) {
  Config config;
  config.world = layout.world;
  config.stage = layout.stage;
  config.grad_accum = kMicroBatches / layout.world;
  config.clip = 0.2f;
  config.steps = kSteps;
  config.look_between_steps = false;
  return config;
}

struct State {
  Values parameters;
  std::array<Values, 2> moments;
};

std::string state_difference(const State& a, const State& b) {
  std::string text = difference(a.parameters, b.parameters);
  for (size_t i = 0; i < 2; ++i)
    if (text.empty()) text = difference(a.moments[i], b.moments[i]);
  return text;
}

MakeModel toy_of(std::vector<std::vector<Shape>> units) {
  ToySetup setup;
  setup.units = std::move(units);
  return toy(std::move(setup));
}

State state_of(const Run& run) { return {run.parameters, run.moments}; }

// Called by all ranks together.
void collect(Rank& rank, State& into) {
  static std::mutex mutex;
  collect_shards(*rank.engine, What::first_moment, into.moments[0]);
  collect_shards(*rank.engine, What::second_moment, into.moments[1]);
  rank.engine->visit_parameters([&](const Parameter& parameter, ConstView view) {
    std::vector<float> values(static_cast<size_t>(view.size));
    rank.context.copy_to_host(values.data(), view);
    const std::lock_guard lock(mutex);
    if (rank.comm.rank() == 0) into.parameters[parameter.name] = std::move(values);
  });
}

// The ranks write their shards into `folder`; returns the index that belongs to them.
class Saver {
 public:
  Saver(std::string folder, int world) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    index.run = "0123456789abcdef";
    index.save = fmt::format("{:016x}", std::hash<std::string>()(folder_));
    index.step = kSteps;
    index.world = world;
    index.states = {"exp_avg", "exp_avg_sq"};
    index.files.resize(static_cast<size_t>(world));
  }

  void save(Rank& rank) {
    const CheckpointFile file =
        write_shard(*rank.engine, rank.context, folder_, index, rank.comm.rank(), rank.comm.size());
    const std::lock_guard lock(mutex_);
    index.files[static_cast<size_t>(rank.comm.rank())] = file;
    index.optimizer_steps = rank.engine->steps_taken();
    index.tensors = checkpoint_tensors(rank.engine->layouts(), rank.comm.size());
  }

  CheckpointIndex index;

 private:
  std::string folder_;
  std::mutex mutex_;
};

struct Continued {
  State loaded, after;
  int64_t steps_taken = 0;
};

Continued load_and_continue(Layout layout, const std::string& folder, const CheckpointIndex& saved, bool with_states) {
  Continued result;
  Config config = config_of(layout);
  config.adjust = [](int, ZeroOptions& options) { options.seed = 99; };  // what is not loaded shows
  // The index as a file has it.
  const CheckpointIndex index = parse_checkpoint_index(to_json(saved), "index.json");
  std::mutex mutex;
  on_ranks(layout.world, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    CheckpointReader reader(folder, index);
    for (int file = 0; file < static_cast<int>(index.files.size()); ++file) reader.verify(file);
    reader.load(*rank.engine, rank.context, with_states);
    collect(rank, result.loaded);
    rank.next_step = kSteps;
    for (int i = 0; i < kMore; ++i) rank.step();
    collect(rank, result.after);
    const std::lock_guard lock(mutex);
    result.steps_taken = rank.engine->steps_taken();
  });
  return result;
}

// The unbroken run of kSteps + kMore steps.
State unbroken(Layout layout) {
  Config config = config_of(layout);
  config.steps = kSteps + kMore;
  return state_of(run(config));
}

}  // namespace

TEST_CASE("resharding: every pair of W and stage has the same bits after loading, and after going on") {
  const TempFolder folder;
  const State one_process = unbroken({1, 0});
  for (const Layout from : layouts()) {
    const std::string place = folder.path(fmt::format("W{}-z{}", from.world, from.stage));
    Saver saver(place, from.world);
    const Run saved = run(config_of(from), [&](Rank& rank) {
      if (rank.next_step == kSteps) saver.save(rank);
    });
    // Not nothing with nothing: something has been learnt, and there are pads that a shard must not hold.
    REQUIRE(difference(saved.start, saved.parameters) != "");
    REQUIRE(relative_error(saved.moments[1], saved.moments[0]) > 0);
    for (const Layout to : layouts()) {
      INFO("W ", from.world, " stage ", from.stage, " -> W ", to.world, " stage ", to.stage);
      const Continued got = load_and_continue(to, place, saver.index, /*with_states=*/true);
      CHECK(state_difference(got.loaded, state_of(saved)) == "");
      CHECK(got.steps_taken == kSteps + kMore);
      const auto in_order = [](Layout l) { return l.stage >= 2 || l.world == 1; };
      if (in_order(from) && in_order(to)) CHECK(state_difference(got.after, one_process) == "");
      if (from.stage < 2 && to.stage < 2 && from.world == to.world)
        CHECK(state_difference(got.after, unbroken({from.world, 0})) == "");
    }
  }
}

TEST_CASE("resharding: weights alone go into a fresh optimizer, whose first step is its first") {
  const TempFolder folder;
  Saver saver(folder.path("save"), 3);
  const Run saved = run(config_of({3, 3}), [&](Rank& rank) {
    if (rank.next_step == kSteps) saver.save(rank);
  });
  const Continued whole = load_and_continue({2, 3}, folder.path("save"), saver.index, true);
  const Continued weights = load_and_continue({2, 3}, folder.path("save"), saver.index, false);
  CHECK(weights.steps_taken == kMore);
  CHECK(difference(weights.loaded.parameters, saved.parameters) == "");
  for (const Values& moments : weights.loaded.moments)
    for (const auto& [name, values] : moments)
      for (const float value : values) REQUIRE(value == 0);
  CHECK(state_difference(weights.after, whole.after) != "");
  // Adam's first step moves an element by at most the learning rate and the decay: masters are the loaded weights.
  const Config config = config_of({2, 3});
  for (const auto& [name, values] : weights.after.parameters)
    for (size_t i = 0; i < values.size(); ++i) {
      const float before = weights.loaded.parameters.at(name)[i];
      REQUIRE(std::abs(values[i] - before) <=
              kMore * config.lr * (1.01f + config.weight_decay * std::abs(before)) * 1.5f);
    }
}

TEST_CASE("resharding: more ranks than elements") {
  const TempFolder folder;
  Config config;
  config.model = toy_of({{{3}}, {{1}, {2}}});
  config.stage = 3;
  config.steps = 2;
  config.world = 8;
  Saver saver(folder.path("save"), 8);
  const Run saved = run(config, [&](Rank& rank) {
    if (rank.next_step == 2) saver.save(rank);
  });
  for (const int world : {1, 4}) {
    Config other = config;
    other.world = world;
    other.stage = world == 1 ? 0 : 2;
    State loaded;
    on_ranks(world, other.comm, [&](Communicator& comm) {
      Rank rank(other, comm);
      CheckpointReader(folder.path("save"), saver.index).load(*rank.engine, rank.context, true);
      collect(rank, loaded);
    });
    CHECK(state_difference(loaded, state_of(saved)) == "");
  }
}

TEST_CASE("resharding: no rank needs more memory than its share and a buffer to load") {
  const TempFolder folder;
  Config config;
  config.model = toy_of(equal_units(4, 2, 5003));
  config.world = 4;
  config.stage = 3;
  config.steps = 1;
  Saver saver(folder.path("save"), 4);
  run(config, [&](Rank& rank) { saver.save(rank); });
  on_ranks(4, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    rank.context.memory().reset_peak();
    const int64_t before = rank.context.memory().peak_total();
    CheckpointReader(folder.path("save"), saver.index).load(*rank.engine, rank.context, true);
    if (rank.context.memory().peak_total() != before) throw Error("loading took device memory");
  });
}

TEST_CASE("resharding: a model that does not match is told each difference") {
  const TempFolder folder;
  Config config;
  config.model = toy_of({{{3, 2}, {4}}, {{5}}});
  config.steps = 1;
  Saver saver(folder.path("save"), 1);
  run(config, [&](Rank& rank) { saver.save(rank); });
  Config other = config;
  other.model = toy_of({{{2, 3}, {4}}, {{5}, {1}}});
  std::vector<std::string> differences;
  run(other, [&](Rank& rank) { differences = model_differences(saver.index, rank.engine->layouts()); });
  REQUIRE(differences.size() == 2);
  CHECK(contains(differences[0], "u0.p0 is (3, 2) in the checkpoint and (2, 3) in the model"));
  CHECK(contains(differences[1], "u1.p1 (1) is in the model only"));
}

TEST_CASE("resharding: shards that are damaged, cut short, missing, or of another save") {
  const TempFolder folder;
  Config config;
  config.model = toy_of(equal_units(2, 2, 101));
  config.world = 2;
  config.stage = 3;
  config.steps = 1;
  Saver first(folder.path("a"), 2), second(folder.path("b"), 2);
  run(config, [&](Rank& rank) { first.save(rank), second.save(rank); });
  const std::string name = shard_file_name(1, 2), good = folder.path("a/" + name);
  const auto error = [&] {
    return error_of<DataError>([&] { CheckpointReader(folder.path("a"), first.index).verify(1); });
  };
  CHECK(error() == "");
  std::ifstream file(good, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};

  std::string flipped = bytes;
  flipped[bytes.size() - 7] = static_cast<char>(flipped[bytes.size() - 7] ^ 1);
  folder.write("a/" + name, flipped);
  CHECK(contains(error(), "damaged"));
  folder.write("a/" + name, bytes.substr(0, bytes.size() - 5));
  CHECK(contains(error(), "cut short"));
  std::filesystem::copy_file(folder.path("b/" + name), good, std::filesystem::copy_options::overwrite_existing);
  CHECK(contains(error(), "belongs to another save"));
  std::filesystem::remove(good);
  CHECK(contains(error(), "cannot be opened"));
}

}  // namespace trencadis::test
