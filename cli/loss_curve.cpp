#include "cli/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr double kWidth = 640, kHeight = 360, kLeft = 64, kBottom = 32, kMargin = 12;
constexpr int kTicks = 5;
constexpr size_t kMostPoints = 2000;

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", x);
  return text;
}

}  // namespace

std::string loss_curve(const std::vector<double>& losses, int64_t first) {
  std::string svg =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", kHeight,
          "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
          "fill=\"white\"/>\n");
  const auto [least, most] = std::ranges::minmax(losses);
  const bool logarithmic = least > 0;
  const auto scaled = [&](double loss) { return logarithmic ? std::log10(loss) : loss; };
  const double low = scaled(least), high = std::max(scaled(most), low + 1e-9);
  const double across = kWidth - kLeft - kMargin, up = kHeight - kBottom - kMargin;
  const auto x_of = [&](double i) {
    return kLeft + across * i / std::max<double>(1, static_cast<double>(losses.size()) - 1);
  };
  const auto y_of = [&](double value) { return kMargin + up * (high - value) / (high - low); };
  for (int i = 0; i < kTicks; ++i) {
    const double value = low + (high - low) * i / (kTicks - 1), y = y_of(value);
    svg += cat("<line x1=\"", kLeft, "\" x2=\"", kWidth - kMargin, "\" y1=\"", number(y), "\" y2=\"",
               number(y), "\" stroke=\"#ddd\"/><text x=\"", kLeft - 6, "\" y=\"", number(y + 4),
               "\" text-anchor=\"end\">", number(logarithmic ? std::pow(10, value) : value), "</text>\n");
    const double at = (static_cast<double>(losses.size()) - 1) * i / (kTicks - 1);
    svg += cat("<text x=\"", number(x_of(at)), "\" y=\"", kHeight - 12, "\" text-anchor=\"middle\">",
               number(std::floor(at) + static_cast<double>(first)), "</text>\n");
  }
  svg += "<polyline fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.5\" points=\"";
  const size_t stride = std::max<size_t>(1, losses.size() / kMostPoints);
  for (size_t i = 0; i < losses.size(); i += stride)
    svg += cat(number(x_of(static_cast<double>(i))), ",", number(y_of(scaled(losses[i]))), " ");
  return svg + "\"/>\n</svg>\n";
}

}  // namespace stridec::cli
