#include "models/report/run_record.h"

#include <nlohmann/json.hpp>

namespace trencadis {

namespace {

using nlohmann::ordered_json;

const RunRecord::Row* row_of(const RunRecord& run, const std::string& name) {
  for (const auto* rows : {&run.memory, &run.traffic})
    for (const RunRecord::Row& row : *rows)
      if (row.name == name) return &row;
  return nullptr;
}

ordered_json rows_to_json(const std::vector<RunRecord::Row>& rows) {
  ordered_json json = ordered_json::array();
  for (const RunRecord::Row& row : rows)
    json.push_back({{"name", row.name}, {"predicted", row.predicted}, {"measured", row.measured}});
  return json;
}

std::vector<RunRecord::Row> rows_from_json(const ordered_json& json) {
  std::vector<RunRecord::Row> rows;
  for (const ordered_json& row : json)
    rows.push_back(
        {row.at("name").get<std::string>(), row.at("predicted").get<int64_t>(), row.at("measured").get<int64_t>()});
  return rows;
}

// One list for writing and reading: action(key, member).
template <typename Run, typename Action>
void for_each_member(Run& run, Action&& action) {
  action("status", run.status);
  action("version", run.version);
  action("started", run.started);
  action("data", run.data);
  action("model", run.model);
  action("metrics", run.metrics);
  action("world", run.world);
  action("parameters", run.parameters);
  action("max_steps", run.max_steps);
  action("steps_done", run.steps_done);
  action("seconds", run.seconds);
  action("digest", run.digest);
  action("sample", run.sample);
}

}  // namespace

int64_t RunRecord::measured(const std::string& name) const {
  const Row* row = row_of(*this, name);
  return row ? row->measured : -1;
}

int64_t RunRecord::predicted(const std::string& name) const {
  const Row* row = row_of(*this, name);
  return row ? row->predicted : -1;
}

std::string RunRecord::setting(const std::string& key) const {
  for (const auto& [name, value] : config)
    if (name == key) return value;
  return "";
}

std::string to_json(const RunRecord& run) {
  ordered_json json;
  for_each_member(run, [&](const char* key, const auto& member) { json[key] = member; });
  json["memory"] = rows_to_json(run.memory);
  json["traffic"] = rows_to_json(run.traffic);
  for (const auto& [key, value] : run.config) json["config"][key] = value;
  // A sample of a byte model may end inside a character.
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

RunRecord run_record_from_json(const std::string& text) {
  const ordered_json json = ordered_json::parse(text);
  RunRecord run;
  for_each_member(run, [&](const char* key, auto& member) { json.at(key).get_to(member); });
  run.memory = rows_from_json(json.at("memory"));
  run.traffic = rows_from_json(json.at("traffic"));
  if (json.contains("config"))
    for (const auto& [key, value] : json["config"].items()) run.config.emplace_back(key, value.get<std::string>());
  return run;
}

}  // namespace trencadis
