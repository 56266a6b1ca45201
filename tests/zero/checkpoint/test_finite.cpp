// Values that are not finite: found, named, refused where training would start from them; and kept, to the bit, where a
// run had them when it saved.
#include <bit>
#include <cmath>
#include <limits>

// The project's headers first, see temp_folder.h.
// clang-format off
#include "zero/checkpoint/shards.h"
#include "zero/finite.h"
#include "../training.h"
#include "../../models/temp_folder.h"
// clang-format on

namespace trencadis::test {

namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// u0.p0 (3, 2), u0.p1 (4), u1.p0 (5); a shard ends inside of most of them.
Config config_of(int world, int stage) {
  ToySetup setup;
  setup.units = {{{3, 2}, {4}}, {{5}}};
  Config config;
  config.model = toy(std::move(setup));
  config.world = world;
  config.stage = stage;
  config.grad_accum = 6 / world;
  config.steps = 1;
  return config;
}

struct Poke {
  std::string parameter;
  int state;  // kParameterValues or a moment's number
  int64_t element;
  float value;
};

// Writes a value into the memory of whoever has it.
void poke(Rank& rank, const Poke& at) {
  rank.engine->visit_state(StateExtent::held, [&](const StateSlice& slice) {
    const int64_t here = at.element - slice.first;
    if (slice.parameter.name == at.parameter && slice.state == at.state && here >= 0 && here < slice.memory.size)
      rank.context.copy_from_host(slice.memory.slice(here, 1), &at.value);
  });
}

// Adds what this rank owns to all state of all parameters, as the ranks together hold it: "0/u0.p1" -> elements.
void add_state_of(Rank& rank, std::mutex& mutex, Values& into) {
  rank.engine->visit_state(StateExtent::owned, [&](const StateSlice& slice) {
    std::vector<float> values(static_cast<size_t>(slice.memory.size));
    rank.context.copy_to_host(values.data(), slice.memory);
    const std::lock_guard lock(mutex);
    std::vector<float>& whole = into[fmt::format("{}/{}", slice.state, slice.parameter.name)];
    whole.resize(static_cast<size_t>(slice.parameter.size()));
    std::copy(values.begin(), values.end(), whole.begin() + slice.first);
  });
}

struct Saved {
  CheckpointIndex index;
  Values state;
};

Saved save(const std::string& folder, int world, int stage, const std::vector<Poke>& pokes) {
  std::filesystem::create_directories(folder);
  Saved saved;
  saved.index.run = saved.index.save = "0123456789abcdef";
  saved.index.states = {"exp_avg", "exp_avg_sq"};
  saved.index.files.resize(static_cast<size_t>(world));
  std::mutex mutex;
  run(config_of(world, stage), [&](Rank& rank) {
    for (const Poke& at : pokes) poke(rank, at);
    add_state_of(rank, mutex, saved.state);
    const CheckpointFile file = write_shard(*rank.engine, rank.context, folder, saved.index, rank.comm.rank(), world);
    const std::lock_guard lock(mutex);
    saved.index.files[static_cast<size_t>(rank.comm.rank())] = file;
    saved.index.tensors = checkpoint_tensors(rank.engine->layouts(), world);
  });
  return saved;
}

// What each rank throws.
std::vector<std::string> load(const std::string& folder, const CheckpointIndex& saved, int world, int stage,
                              bool with_states, bool as_saved, Values* state = nullptr) {
  const CheckpointIndex index = parse_checkpoint_index(to_json(saved), "index.json");
  const Config config = config_of(world, stage);
  std::mutex mutex;
  return errors_on_ranks(world, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    CheckpointReader(folder, index).load(*rank.engine, rank.context, with_states, as_saved);
    if (state) add_state_of(rank, mutex, *state);
  });
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.size() == y.second.size() &&
                  std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
         });
}

int64_t errors_with(const std::vector<std::string>& errors, const std::string& text) {
  return std::count_if(errors.begin(), errors.end(),
                       [&](const std::string& e) { return e.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("finite: what is NaN or infinite is found, wherever it lies") {
  for (uint32_t high = 0; high < 65536; ++high)
    for (const uint32_t low : {0u, 1u, 0xffffu}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      REQUIRE(count_not_finite({&value, 1}) == !std::isfinite(value));
      REQUIRE(first_not_finite({&value, 1}) == (std::isfinite(value) ? -1 : 0));
    }
  CHECK(first_not_finite({}) == -1);
  std::vector<float> many(10007, 1.5f);
  CHECK(first_not_finite(many) == -1);
  for (const size_t at : {0ul, 1ul, 4095ul, 4096ul, 8191ul, 10006ul}) {
    many.assign(many.size(), -1.5f);
    many[at] = many.back() = -kInf;
    CHECK(first_not_finite(many) == static_cast<int64_t>(at));
    CHECK(count_not_finite(many) == (at == many.size() - 1 ? 1 : 2));
  }
  CHECK(describe_element("a.weight", {2, 3, 4}, 23, kNan) == "a.weight[1,2,3] is nan");
  CHECK(describe_element("a.bias", {7}, 5, -kInf) == "a.bias[5] is -inf");
  CHECK(describe_element("a", {}, 0, kInf) == "a is inf");
}

TEST_CASE("finite: weights that are given are refused by name, on the ranks that have them") {
  const Config config = config_of(3, 3);
  const auto errors = [&](const std::function<std::string(const Parameter&, int64_t, float)>& place) {
    return errors_on_ranks(3, config.comm, [&](Communicator& comm) {
      Rank rank(config, comm);
      rank.engine->set_parameters(
          [](const Parameter& parameter, int64_t first, std::span<float> values) {
            std::fill(values.begin(), values.end(), 0.5f);
            for (size_t i = 0; i < values.size(); ++i)
              if (parameter.name == "u0.p0" && first + static_cast<int64_t>(i) == 3) values[i] = kNan;
          },
          place);
    });
  };
  const auto plain = errors(nullptr);
  CHECK(errors_with(plain, "u0.p0[1,1] is nan: a training cannot start from values that are not finite") == 1);
  CHECK(errors_with(plain, "u0.p1") + errors_with(plain, "u1.p0") == 0);
  CHECK(errors_with(errors([](const Parameter& p, int64_t element, float value) {
                      return fmt::format("file: {}#{}={}", p.name, element, value);
                    }),
                    "file: u0.p0#3=nan: a training cannot start") == 1);
}

TEST_CASE("finite: a checkpoint keeps what its run had, and what it had not is damage") {
  const TempFolder temp;
  const std::vector<Poke> pokes = {
      {"u0.p0", kParameterValues, 3, kNan}, {"u1.p0", kParameterValues, 4, -kInf}, {"u0.p1", 1, 2, kInf}};
  for (const auto& [world, stage] : {std::pair{1, 0}, {2, 0}, {3, 3}}) {
    CAPTURE(world);
    const std::string folder = temp.path(fmt::format("W{}", world));
    const Saved saved = save(folder, world, stage, pokes);
    CHECK(saved.index.not_finite() == 3);  // each once, whoever has copies
    CHECK(std::isnan(saved.state.at("-1/u0.p0")[3]));

    // The run goes on, at other ranks, with the same bits.
    for (const auto& [to_world, to_stage] : {std::pair{1, 0}, {2, 3}}) {
      Values state;
      CHECK(load(folder, saved.index, to_world, to_stage, true, true, &state) ==
            std::vector<std::string>(static_cast<size_t>(to_world)));
      CHECK(same_bits(state, saved.state));
    }

    // A training does not start from them; only the weights count for it.
    const auto start = load(folder, saved.index, 2, 3, false, false);
    CHECK(errors_with(start, "values/u0.p0[1,1] is nan, as it was in the run that saved it") == 1);
    CHECK(errors_with(start, "values/u1.p0[4] is -inf, as it was in the run that saved it") <= 1);
    CHECK(errors_with(start, folder + "/rank-000") == errors_with(start, "name an earlier checkpoint"));

    // The same bytes, of a run that had no such value: values and moments.
    CheckpointIndex without = saved.index;
    for (CheckpointFile& file : without.files) file.not_finite = 0;
    CHECK(to_json(without).find("not_finite") == std::string::npos);  // as indices had it before
    for (const bool as_saved : {true, false}) {
      const auto errors = load(folder, without, 1, 0, true, as_saved);
      CHECK(contains(errors[0], folder + "/rank-000"));
      CHECK(contains(errors[0], "values/u0.p0[1,1] is nan, and the index knows of no such value"));
    }
  }
  const Saved moment = save(temp.path("moment"), 2, 3, {{"u0.p1", 1, 2, kInf}});
  CHECK(moment.index.not_finite() == 1);
  CheckpointIndex without = moment.index;
  for (CheckpointFile& file : without.files) file.not_finite = 0;
  CHECK(errors_with(load(temp.path("moment"), without, 2, 3, true, true), "exp_avg_sq/u0.p1[2] is inf, and the") == 1);
  CHECK(load(temp.path("moment"), without, 2, 3, false, false) == std::vector<std::string>(2));  // weights only
  CHECK(load(temp.path("moment"), moment.index, 2, 3, true, true) == std::vector<std::string>(2));
}

}  // namespace trencadis::test
