// planted_bugs NAME      runs the broken form: exit code 0 only if nobody noticed
// planted_bugs --right   runs the right form of all: exit code 0 only if all results are right
#include <cstdio>
#include <exception>
#include <string>

#include "plant.h"

namespace {

using trencadis::planted::Bug;

std::vector<Bug> all_bugs() {
  using namespace trencadis::planted;
  std::vector<Bug> all;
  for (const auto& bugs : {sync_bugs(), warp_bugs(), memory_bugs(), race_bugs(), launch_bugs()})
    all.insert(all.end(), bugs.begin(), bugs.end());
  return all;
}

// Exit code: 0 for the right result.
int run(const Bug& bug, bool broken) {
  try {
    if (bug.run(broken)) return 0;
    std::printf("%s: wrong result\n", bug.name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", bug.name.c_str(), error.what());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc == 2 ? argv[1] : "";
  int failed = 0, found = 0;
  for (const Bug& bug : all_bugs())
    if (wanted == "--right" || wanted == bug.name) {
      ++found;
      failed += run(bug, wanted == bug.name);
    }
  if (found == 0) std::printf("planted_bugs --right | NAME (bugs.json)\n");
  return found == 0 ? 2 : failed > 0;
}
