// Checkpoints as a program uses them: saved by some ranks in some stage and loaded by others, the newest that is whole,
// in a folder that is nobody else's; what fails on one rank fails alike on all.
// The project's headers first, see temp_folder.h.
// clang-format off
#include "dist/on_all_ranks.h"
#include "zero/checkpoint/checkpoints.h"
#include "../training.h"
#include "../../models/temp_folder.h"
// clang-format on

namespace trencadis::test {
namespace {

namespace fs = std::filesystem;

Config config_of(int world, int stage) {
  Config config;
  config.world = world;
  config.stage = stage;
  config.grad_accum = 6 / world;  // 6 micro-batches a step: stages 2 and 3 then have the same bits at any W
  return config;
}

// Runs body on every rank of a training that stands at its start.
void on_run(int world, int stage, const std::function<void(Rank&)>& body) {
  const Config config = config_of(world, stage);
  on_ranks(world, config.comm, [&](Communicator& host) {
    Rank rank(config, host);
    body(rank);
  });
}

// The digest after `steps` steps that nobody saved.
uint32_t unbroken(int steps) {
  uint32_t digest = 0;
  on_run(1, 2, [&](Rank& rank) {
    for (int step = 0; step < steps; ++step) rank.step();
    digest = rank.engine->digest();
  });
  return digest;
}

TEST_CASE("checkpoints: a training goes on at another W and stage with the bits of one that was never saved") {
  const TempFolder temp;
  const std::string out = temp.path("runs/out");  // made with the folder above it
  on_run(3, 2, [&](Rank& rank) {
    Checkpoints checkpoints(out, *rank.engine, rank.comm);
    const bool none = !checkpoints.load();
    rank.step();
    const bool saved = checkpoints.save(1, 6), again = checkpoints.save(1, 6);
    rank.step();
    checkpoints.save(2, 12);
    if (rank.comm.rank() != 0) return;
    CHECK(none);
    CHECK(saved);
    CHECK_FALSE(again);
  });
  on_run(2, 3, [&](Rank& rank) {
    Checkpoints checkpoints(out, *rank.engine, rank.comm);
    const std::optional<CheckpointIndex> from = checkpoints.load();
    const int64_t taken = rank.engine->steps_taken();
    rank.next_step = from ? from->step : 0;
    rank.step();
    checkpoints.save(3, 18);
    const uint32_t digest = rank.engine->digest();
    if (rank.comm.rank() != 0) return;
    REQUIRE(from);
    CHECK(from->step == 2);
    CHECK(from->samples == 12);
    CHECK(from->world == 3);
    CHECK(from->zero_stage == 2);
    CHECK(taken == 2);
    CHECK(digest == unbroken(3));
  });
  // The newest two of this training are kept, whoever saved them.
  const CheckpointListing listing = list_checkpoints(out);
  REQUIRE(listing.candidates.size() == 2);
  CHECK(listing.candidates[0].index.step == 3);
  CHECK(listing.candidates[1].index.step == 2);
  CHECK(listing.candidates[0].index.run == listing.candidates[1].index.run);
}

TEST_CASE("checkpoints: a damaged one is passed over and named, and one may go back to it again") {
  const TempFolder temp;
  const std::string out = temp.path("out"), doomed = out + "/step-00000002/rank-0001-of-0002.safetensors";
  uint32_t digest = 0;
  on_run(2, 1, [&](Rank& rank) {
    Checkpoints checkpoints(out, *rank.engine, rank.comm);
    rank.step();
    checkpoints.save(1);
    const uint32_t at_one = rank.engine->digest();
    rank.step();
    checkpoints.save(2);
    rank.comm.barrier({"both saved", Traffic::other});
    if (rank.comm.rank() == 0) fs::resize_file(doomed, fs::file_size(doomed) - 4);
    rank.comm.barrier({"one damaged", Traffic::other});
    const std::optional<CheckpointIndex> from = checkpoints.load();
    const uint32_t loaded = rank.engine->digest();
    rank.next_step = from ? from->step : 0;
    rank.step();
    const bool saved = checkpoints.save(2);
    if (rank.comm.rank() != 0) return;
    REQUIRE(from);
    CHECK(from->step == 1);
    CHECK(loaded == at_one);
    CHECK(saved);
    digest = rank.engine->digest();
  });
  on_run(1, 0, [&](Rank& rank) {
    Checkpoints checkpoints(out, *rank.engine, rank.comm);
    REQUIRE(checkpoints.load());
    CHECK(rank.engine->digest() == digest);
  });
}

TEST_CASE("checkpoints: notes say what was ignored and what was done") {
  const TempFolder temp;
  const std::string out = temp.path("out");
  fs::create_directories(out + "/step-00000009.partial");
  on_run(1, 0, [&](Rank& rank) {
    Checkpoints checkpoints(out, *rank.engine, rank.comm);
    CHECK_FALSE(checkpoints.load());
    REQUIRE(checkpoints.notes().size() == 1);
    CHECK(contains(checkpoints.notes()[0], "step-00000009.partial: never finished"));
    rank.step();
    checkpoints.save(1);
    REQUIRE(checkpoints.notes().size() == 1);
    CHECK(contains(checkpoints.notes()[0], "saved " + out + "/step-00000001"));
  });
}

TEST_CASE("checkpoints: what one rank finds wrong is the same DataError on all") {
  const TempFolder temp;
  const std::string out = temp.path("out");
  const auto errors = [&](const std::function<void(Rank&)>& body) {
    std::array<std::string, 2> texts;
    on_run(2, 0, [&](Rank& rank) {
      try {
        body(rank);
      } catch (const Agreed<DataError>& error) {
        texts[static_cast<size_t>(rank.comm.rank())] = error.what();
      }
    });
    CHECK(texts[0] == texts[1]);
    return texts[0];
  };
  CHECK(errors([&](Rank& rank) { Checkpoints(out, *rank.engine, rank.comm).save(1); }).empty());

  // Another model, whose name of a parameter is the same.
  ToySetup one_vector;
  one_vector.units = {{{3}}};
  Config other = config_of(1, 0);
  other.model = toy(one_vector);
  on_ranks(1, {}, [&](Communicator& host) {
    Rank rank(other, host);
    const std::string text = error_of<Agreed<DataError>>([&] { Checkpoints(out, *rank.engine, rank.comm).load(); });
    CHECK(contains(text, "step-00000001: is of another model"));
    CHECK(contains(text, "u0.p0"));
  });
  // In use; the lock is given back with its holder.
  const auto lock = std::make_unique<FolderLock>(out, "the folder");
  CHECK(contains(errors([&](Rank& rank) { Checkpoints(out, *rank.engine, rank.comm); }),
                 "the folder of the checkpoints '" + out + "' is in use: another run saves its checkpoints there"));
  // A file is no folder.
  const std::string file = temp.write("file", "x");
  CHECK(contains(errors([&](Rank& rank) { Checkpoints(file, *rank.engine, rank.comm); }),
                 "'" + file + "' cannot be written to: Not a directory; checkpoints go there: choose another"));
}

}  // namespace
}  // namespace trencadis::test
