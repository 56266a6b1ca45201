#include "models/report/profile_table.h"

#include <algorithm>

namespace trencadis {

std::string profile_table(const Profile& profile, int64_t steps, double seconds) {
  const double count = static_cast<double>(std::max<int64_t>(1, steps)), whole = std::max(seconds, 1e-12);
  std::string text = fmt::format("  {:<32} {:>10} {:>10} {:>7} {:>8} {:>8}", "a step of this rank", "calls", "ms",
                                 "share", "GF/s", "GB/s");
  double rest = seconds, products = 0, flops = 0;
  for (const Profile::Row& row : profile.rows()) {
    const double busy = std::max(row.seconds, 1e-12);
    text += fmt::format("\n  {:<32} {:>10.1f} {:>10.3f} {:>6.1f}% {:>8} {:>8.1f}", row.kernel,
                        static_cast<double>(row.calls) / count, 1e3 * row.seconds / count, 100 * row.seconds / whole,
                        row.flops > 0 ? fmt::format("{:.1f}", row.flops / busy / 1e9) : "", row.bytes / busy / 1e9);
    rest -= row.seconds;
    flops += row.flops;
    if (row.flops > 0) products += row.seconds;
  }
  text += fmt::format("\n  {:<32} {:>10} {:>10.3f} {:>6.1f}%", "everything else", "", 1e3 * rest / count,
                      100 * rest / whole);
  text += fmt::format("\n  {:<32} {:>10} {:>10.3f} {:>6.1f}% {:>8.1f}", "the step (products alone: GF/s)", "",
                      1e3 * seconds / count, 100.0, flops / std::max(products, 1e-12) / 1e9);
  return text;
}

}  // namespace trencadis
