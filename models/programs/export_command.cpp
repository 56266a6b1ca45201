// `trencadis export`: a Hugging Face folder from a checkpoint, without training. On several ranks each holds its share
// of the parameters (stage 3), so that what was trained there is exported there.
#include "dist/mpi/mpi_communicator.h"
#include "dist/on_all_ranks.h"
#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "models/programs/program.h"
#include "models/trainer/launch.h"
#include "models/trainer/model_options.h"
#include "optim/optimizer.h"
#include "runtime/cpu/backend.h"
#include "zero/checkpoint/checkpoints.h"

namespace trencadis {

namespace {

struct ExportOptions {
  std::string checkpoint, to, dtype = "f32";
};

FlagTable export_flags(ExportOptions& options) {
  FlagTable table;
  table.text("to", "DIR", options.to,
             "the folder to write, with config.json and model.safetensors: new, empty, or an earlier export, which is "
             "replaced");
  table.choice("export-dtype", "f32|bf16", options.dtype, "type of the weights; bf16 rounds them to nearest");
  table.command("help,h", "", "print this and exit");
  return table;
}

std::string help(const std::string& program, const FlagTable& table) {
  return fmt::format(
             "Usage: {} CHECKPOINT --to DIR [--export-dtype f32|bf16]\n\n"
             "Writes the weights of a checkpoint as a Hugging Face folder, which transformers reads. CHECKPOINT is\n"
             "one, out/step-00000120, or the folder of a run (--out-dir), whose newest complete one is taken. It may\n"
             "have been saved on any number of ranks, in any stage; under mpirun each rank holds its share only.\n",
             program) +
         help_of(table, [](const Flag& flag) { return flag.key == "export-dtype" ? flag.get() : std::string(); });
}

// What the words of the command say; empty where help was asked for.
ExportOptions parse(const Arguments& arguments, bool& help_asked, std::string& text) {
  ExportOptions options;
  const FlagTable table = export_flags(options);
  const CommandLine line = read_command_line(table, arguments);
  help_asked = line.help;
  if (help_asked) {
    text = help(arguments.program, table);
    return options;
  }
  for (const Setting& setting : line.settings) setting.flag->set(setting.shown, setting.value);
  if (line.words.size() != 1)
    throw UsageError(
        fmt::format("give one checkpoint, not {}: {} CHECKPOINT --to DIR", line.words.size(), arguments.program));
  if (options.to.empty()) throw UsageError("--to is missing: give the folder to write");
  options.checkpoint = line.words.front();
  return options;
}

void export_checkpoint(const ExportOptions& options, Communicator& world) {
  std::vector<std::string> notes;
  on_all_ranks(world, [&] {
    if (world.rank() == 0) check_export_folder(options.to);
  });
  const FoundCheckpoint found = *find_checkpoint("CHECKPOINT", options.checkpoint, false, world, notes);
  TrainOptions sizes;
  on_all_ranks(world, [&] { set_sizes_from(sizes, found.folder); });
  CpuOptions cpu;
  cpu.threads = share_cores(world).threads;
  Context context(make_cpu_backend(cpu));
  const auto group = make_mpi_world({}, nullptr, &context);
  const std::unique_ptr<LanguageModel> model = make_model(model_config(sizes, sizes.vocab_size));
  // Nothing is stepped: an optimizer without state takes no memory.
  ZeroEngine engine(context, ZeroGroups{group.get(), nullptr}, model->units(), make_sgd({.momentum = 0}), {.stage = 3});
  notes.push_back(load_checkpoint(found, engine, context, *group, /*with_states=*/false));
  export_hugging_face(engine, *model, *group, options.to, options.dtype == "bf16" ? DType::bf16 : DType::f32);
  notes.push_back("exported: " + options.to);
  if (world.rank() == 0)
    for (const std::string& note : notes) fmt::print("{}\n", note);
}

}  // namespace

int export_command(const Arguments& arguments) {
  return on_ranks(arguments, [&](MpiEnvironment& mpi, Communicator& world) {
    ExportOptions options;
    bool help_asked = false;
    std::string text;
    on_all_ranks(world, [&] { options = parse(arguments, help_asked, text); });
    if (!help_asked)
      export_checkpoint(options, world);
    else if (mpi.rank() == 0)
      fmt::print("{}", text);
  });
}

}  // namespace trencadis
