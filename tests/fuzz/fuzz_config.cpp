// Fuzz target: config files. What is taken, printed with print_config() and read again gives the same configuration.
#include "fuzz.h"
#include "models/options/flag_table.h"

using namespace trencadis;
using namespace trencadis::fuzz;

namespace {

TrainOptions options_of(const std::string& text, const std::string& path) {
  TrainOptions options;
  const std::vector<Setting> settings = parse_config(text, path);
  for (const bool preset : {true, false})  // as parse_options() does
    for (const Setting& setting : settings) {
      expect(setting.flag && setting.flag->set && !setting.flag->command_line_only, "a key that is none of the file");
      if ((setting.flag->key == "preset") == preset) setting.flag->set(options, setting.shown, setting.value);
    }
  return options;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  refuses<UsageError>("run.conf:", [&] {
    const TrainOptions options = options_of(as_text(data, size), "run.conf");
    const std::string printed = print_config(options);
    const bool refused = refuses<UsageError>("again:", [&] {
      const TrainOptions again = options_of(printed, "again");
      for (const Flag& flag : flag_table()) {
        // Printed as a comment: it follows from the other.
        if (!flag.get || (flag.key == "grad-accum" && options.total_batch_tokens > 0)) continue;
        expect(flag.get(again) == flag.get(options),
               fmt::format("{} is '{}', read again '{}'", flag.key, flag.get(options), flag.get(again)));
      }
    });
    expect(!refused, "what print_config() writes is refused");
  });
  return 0;
}
