// Fuzz target: config files. What is taken, printed with print_config() and read again gives the same configuration.
#include "fuzz.h"
#include "models/options/config_file.h"

using namespace trencadis;
using namespace trencadis::fuzz;

namespace {

TrainOptions options_of(const std::string& text, const std::string& path) {
  TrainOptions options;
  const FlagTable table = train_flags(options);
  const std::vector<Setting> settings = parse_config(table, text, path);
  for (const bool preset : {true, false})  // as parse_train() does
    for (const Setting& setting : settings) {
      expect(setting.flag && setting.flag->set && !setting.flag->command_line_only, "a key that is none of the file");
      if ((setting.flag->key == "preset") == preset) setting.flag->set(setting.shown, setting.value);
    }
  return options;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  refuses<UsageError>("run.conf:", [&] {
    const TrainOptions options = options_of(as_text(data, size), "run.conf");
    const std::string printed = print_config(options);
    const bool refused = refuses<UsageError>("again:", [&] {
      const std::vector<std::pair<std::string, std::string>> now = settings_of(options_of(printed, "again"));
      size_t i = 0;
      for (const auto& [key, value] : settings_of(options)) {
        const std::string& read = now[i++].second;
        // Printed as a comment: it follows from the other.
        if (key == "grad-accum" && options.total_batch_tokens > 0) continue;
        expect(read == value, fmt::format("{} is '{}', read again '{}'", key, value, read));
      }
    });
    expect(!refused, "what print_config() writes is refused");
  });
  return 0;
}
