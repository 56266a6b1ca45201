// Three flags as a table: the same entries read a command line and a config file, answer a typo and print the help.
#include <cstdio>

#include "models/options/command_line.h"
#include "models/options/config_file.h"
#include "runtime/check.h"

using namespace trencadis;

namespace {

// [table]
struct Floor {
  int64_t tiles = 12;
  std::string colour = "blue";
  bool broken = false;
};

FlagTable flags_of(Floor& floor) {  // bound to `floor`: reading a value sets its variable
  FlagTable table;
  table.group("Floor");
  table.integer("tiles,n", floor.tiles, 1, 1000, "how many");
  table.choice("colour,color", "blue|white|gold", floor.colour, "of each of them");
  table.on_off("broken", floor.broken, "break them first");
  table.command("help,h", "", "print this and exit");
  return table;
}
// [end]

// [layers]
void read(const std::string& config, std::vector<std::string> words) {
  Floor floor;  // the lowest layer: defaults
  const FlagTable table = flags_of(floor);
  try {
    std::vector<Setting> settings = parse_config(table, config, "floor.conf");
    const CommandLine line = read_command_line(table, {"lay", std::move(words)});
    settings.insert(settings.end(), line.settings.begin(), line.settings.end());  // later ones win
    for (const Setting& setting : settings) setting.flag->set(setting.shown, setting.value);
    fmt::print("{} {} tiles{}\n", floor.tiles, floor.colour, floor.broken ? ", broken" : "");
  } catch (const UsageError& error) {
    fmt::print("error: {}\n", error.what());
  }
}
// [end]

}  // namespace

int main() {
  read("", {});
  read("tiles = 30\ncolour = gold\n", {"--color=white", "--broken"});
  read("", {"--tilse", "30"});
  read("tiles = many\n", {});
  read("", {"-n", "0"});
  Floor floor;
  fmt::print("{}", help_of(flags_of(floor), [](const Flag& flag) { return flag.get ? flag.get() : ""; }));
}
