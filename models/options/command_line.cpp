#include "models/options/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/check.h"

namespace trencadis {

namespace {

bool is_long(const std::string& argument) { return argument.size() > 2 && argument.starts_with("--"); }

// Makes "--batch_size=4" to "--batch-size", "4": CLI11 knows neither that '_' is '-' nor an empty value behind '='.
// What follows a flag that takes a value is left alone, so that a prompt may begin with dashes.
std::vector<std::string> normalised(const FlagTable& table, const std::vector<std::string>& words, bool& help) {
  std::vector<std::string> arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& argument = words[i];
    if (!is_long(argument) && (argument.size() < 2 || argument[0] != '-')) {
      arguments.push_back(argument);
      continue;
    }
    const size_t equals = is_long(argument) ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    if (is_long(argument)) std::replace(name.begin() + 2, name.end(), '_', '-');
    const Flag* flag =
        is_long(argument) || argument.size() == 2 ? table.find(name.substr(is_long(name) ? 2 : 1)) : nullptr;
    if (!is_long(argument) && argument.size() > 2 && argument[1] != '-' && table.find(argument.substr(1)))
      throw UsageError(fmt::format("{}: long flags have two dashes: -{}", argument, argument));
    if (flag && flag->key == "help") help = true;
    const bool takes_value = flag && !flag->is_switch;
    if (equals != std::string::npos && takes_value) {
      arguments.push_back(name);
      arguments.push_back(argument.substr(equals + 1));
      continue;
    }
    if (takes_value && i + 1 == words.size())
      throw UsageError(fmt::format("{}: a value is missing; it takes {}", flag->title(), flag->meta));
    arguments.push_back(equals == std::string::npos ? name : name + argument.substr(equals));
    if (takes_value) arguments.push_back(words[++i]);
  }
  return arguments;
}

[[noreturn]] void unknown_flag(const FlagTable& table, const std::string& argument) {
  if (!is_long(argument)) throw UsageError(fmt::format("unknown flag {}; --help lists all there are", argument));
  const std::string name = argument.substr(2, argument.find('=') - 2);
  throw UsageError(fmt::format("unknown flag --{}{}", name, table.suggestion(name, true)));
}

}  // namespace

const std::string* CommandLine::value(const std::string& key) const {
  for (const Setting& setting : settings)
    if (setting.flag->key == key) return &setting.value;
  return nullptr;
}

CommandLine read_command_line(const FlagTable& table, const Arguments& arguments) {
  CommandLine line;
  std::vector<std::string> words = normalised(table, arguments.words, line.help);
  if (line.help) return line;

  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  for (const Flag& flag : table.flags()) {
    std::string names;
    for (const std::string& name : flag.names)
      names += (names.empty() ? "-" : ",-") + std::string(name.size() > 1, '-') + name;
    const auto store = [&line, &flag](const std::string& value) {
      line.settings.push_back({&flag, flag.title(), value.empty() && flag.is_switch ? "on" : value});
    };
    // Given twice, the last counts: scripts append flags to those of others.
    CLI::Option* option = app.add_option_function<std::string>(names, store)->take_last();
    if (flag.is_switch) option->expected(0, flag.command_line_only ? 0 : 1);
  }
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; --help shows how flags are written", error.what()));
  }
  line.words = app.remaining();
  for (const std::string& word : line.words)
    if (word.size() > 1 && word[0] == '-') unknown_flag(table, word);
  return line;
}

std::string help_of(const FlagTable& table, const std::function<std::string(const Flag&)>& value) {
  std::string text, group;
  for (const Flag& flag : table.flags()) {
    if (flag.group != group) text += fmt::format("\n{}\n", flag.group);
    group = flag.group;
    text += help_of(flag, value(flag));
  }
  return text;
}

}  // namespace trencadis
