// trencadis: one program, a command a purpose. Called by the name train_gpt it is `trencadis train` (and
// `train_gpt report` is `trencadis report`), so that scripts that know that name go on.
#include <cstdio>
#include <filesystem>

#include "models/programs/program.h"
#include "runtime/check.h"

namespace {

using namespace trencadis;

std::string help() {
  std::string text =
      "Usage: trencadis COMMAND [flags]     or under mpirun: mpirun -np 2 trencadis COMMAND [flags]\n\n"
      "Trains language models whose state is sharded over ranks (ZeRO), on CPUs and GPUs.\n\n";
  for (const Command& command : commands()) text += fmt::format("  {:<10} {}\n", command.name, command.what);
  return text +
         "\n  trencadis COMMAND --help      the flags of a command\n"
         "  trencadis --version\n\n"
         "Exit codes: 0 done, 2 usage, 3 data or checkpoint, 4 diverged, 1 anything else.\n";
}

const Command* find(const std::string& name) {
  for (const Command& command : commands())
    if (command.name == name) return &command;
  return nullptr;
}

[[noreturn]] void unknown_command(const std::string& word) {
  if (word.starts_with('-'))
    throw UsageError(
        fmt::format("{} stands before any command; trencadis train {} ...? --help lists them", word, word));
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string best = nearest(word, names);
  throw UsageError(fmt::format(
      "there is no command '{}'{}", word,
      best.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : fmt::format("; did you mean {}?", best)));
}

int run(const std::string& name, std::vector<std::string> words) {
  if (name.starts_with("train_gpt")) {
    if (!words.empty() && words[0] == "report")
      return report_command({name + " report", {words.begin() + 1, words.end()}});
    return train_command({name, std::move(words)});
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print("{}", help());
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    fmt::print("{} " TRENCADIS_VERSION " (Trencadís)\n", name);
    return 0;
  }
  const Command* command = find(words[0]);
  if (!command) unknown_command(words[0]);
  return command->run({name + " " + command->name, {words.begin() + 1, words.end()}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "trencadis";
  try {
    return run(name, {argv + std::min(argc, 1), argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", name, e.what());
    return exit_code_of(e);
  }
}
