#include "models/programs/agree_on_options.h"

#include "dist/on_all_ranks.h"
#include "models/options/config_file.h"
#include "runtime/check.h"

namespace trencadis {

TrainOptions agree_on_options(Communicator& world, const std::function<TrainOptions()>& parse) {
  TrainOptions options;
  on_all_ranks(world, [&] { options = parse(); });
  const std::vector<std::string> told = exchange_texts(world, fingerprint(options));
  std::string differences;
  for (int r = 1; r < world.size(); ++r) {
    const std::string difference = fingerprint_difference(told[0], 0, told[static_cast<size_t>(r)], r);
    if (!difference.empty()) differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (!differences.empty()) throw Agreed<UsageError>("the ranks were given different flags: " + differences);
  return options;
}

}  // namespace trencadis
