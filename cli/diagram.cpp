#include "cli/diagram.h"

#include <algorithm>

#include "compiler/base/printable.h"
#include "compiler/base/text.h"

namespace stridec::cli {
namespace {

constexpr size_t kLabel = 48;  // characters of a label that are drawn
constexpr int kBoxHeight = 26, kGapX = 18, kGapY = 44, kCharacter = 7, kMargin = 20;
constexpr int kSweeps = 6;

// At most `most` bytes, cut between characters.
std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string dot_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

struct BoxPlace {
  int layer = 0, x = 0, y = 0, width = 0;
  double order = 0;
};

std::vector<std::vector<size_t>> layers_of(const Diagram& diagram, std::vector<BoxPlace>& places) {
  // Edges go from lower to higher numbers, so one pass in order of their ends gives longest paths.
  std::vector<std::vector<size_t>> into(places.size());
  for (const Diagram::Edge& edge : diagram.edges) into[edge.to].push_back(edge.from);
  std::vector<std::vector<size_t>> layers;
  for (size_t i = 0; i < places.size(); ++i) {
    for (const size_t from : into[i]) places[i].layer = std::max(places[i].layer, places[from].layer + 1);
    const auto layer = static_cast<size_t>(places[i].layer);
    if (layer >= layers.size()) layers.resize(layer + 1);
    places[i].order = static_cast<double>(layers[layer].size());
    layers[layer].push_back(i);
  }
  return layers;
}

// Orders the boxes of each layer by the mean position of their neighbours, downwards and upwards in turn.
void order_layers(const Diagram& diagram, std::vector<BoxPlace>& places,
                  std::vector<std::vector<size_t>>& layers) {
  std::vector<std::vector<size_t>> above(places.size()), below(places.size());
  for (const Diagram::Edge& edge : diagram.edges) {
    above[edge.to].push_back(edge.from);
    below[edge.from].push_back(edge.to);
  }
  const auto sweep = [&](std::vector<size_t>& layer, const std::vector<std::vector<size_t>>& neighbours) {
    std::vector<std::pair<double, size_t>> keys;
    for (const size_t box : layer) {
      double sum = 0;
      for (const size_t other : neighbours[box]) sum += places[other].order;
      keys.emplace_back(neighbours[box].empty() ? places[box].order : sum / double(neighbours[box].size()),
                        box);
    }
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < layer.size(); ++i) {
      layer[i] = keys[i].second;
      places[layer[i]].order = double(i);
    }
  };
  for (int i = 0; i < kSweeps; ++i)
    if (i % 2 == 0)
      for (auto& layer : layers) sweep(layer, above);
    else
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) sweep(*layer, below);
}

const char* class_of(Diagram::Box::Kind kind) {
  switch (kind) {
    case Diagram::Box::Kind::kInput: return "i";
    case Diagram::Box::Kind::kOutput: return "o";
    case Diagram::Box::Kind::kPlain: break;
  }
  return "b";
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::string to_dot(const Diagram& diagram) {
  std::string out =
      cat("digraph ", dot_quoted(diagram.name), " {\n  node [shape=box, fontname=\"sans-serif\"];\n");
  for (size_t i = 0; i < diagram.boxes.size(); ++i) {
    const Diagram::Box& box = diagram.boxes[i];
    out += cat("  b", i, " [label=", dot_quoted(shortened(box.label, 2 * kLabel)),
               ", tooltip=", dot_quoted(box.detail),
               box.kind == Diagram::Box::Kind::kPlain ? "" : ", style=rounded", "];\n");
  }
  for (const Diagram::Edge& edge : diagram.edges)
    out +=
        cat("  b", edge.from, " -> b", edge.to,
            edge.label.empty() ? "" : cat(" [label=", dot_quoted(shortened(edge.label, kLabel)), "]"), ";\n");
  return out + "}\n";
}

std::string to_svg(const Diagram& diagram) {
  std::vector<BoxPlace> places(diagram.boxes.size());
  std::vector<std::vector<size_t>> layers = layers_of(diagram, places);
  order_layers(diagram, places, layers);
  int width = 0;
  std::vector<int> widths;
  for (const auto& layer : layers) {
    int x = 0;
    for (const size_t box : layer) {
      const auto length = static_cast<int>(shortened(diagram.boxes[box].label, kLabel).size());
      places[box].x = x;
      places[box].y = kMargin + places[box].layer * (kBoxHeight + kGapY);
      places[box].width = kCharacter * std::max(length, 4) + 14;
      x += places[box].width + kGapX;
    }
    widths.push_back(std::max(0, x - kGapX));
    width = std::max(width, widths.back());
  }
  for (size_t l = 0; l < layers.size(); ++l)
    for (const size_t box : layers[l]) places[box].x += kMargin + (width - widths[l]) / 2;
  const int height = 2 * kMargin + static_cast<int>(layers.size()) * (kBoxHeight + kGapY);
  std::string out =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width + 2 * kMargin, "\" height=\"", height,
          "\" font-family=\"monospace\" font-size=\"12\"><title>", escape_markup(printable(diagram.name)),
          "</title><style>rect{fill:#eef;stroke:#557}.i rect,.o rect{fill:#efe}path{fill:none;stroke:#888}"
          "</style>\n");
  for (const Diagram::Edge& edge : diagram.edges) {
    const BoxPlace &a = places[edge.from], &b = places[edge.to];
    const int x = a.x + a.width / 2, y = a.y + kBoxHeight, to = b.x + b.width / 2, bend = (b.y - y) / 2;
    out +=
        cat("<path d=\"M", x, " ", y, "C", x, " ", y + bend, " ", to, " ", b.y - bend, " ", to, " ", b.y,
            "\">", edge.label.empty() ? "" : cat("<title>", escape_markup(printable(edge.label)), "</title>"),
            "</path>\n");
  }
  for (size_t i = 0; i < diagram.boxes.size(); ++i) {
    const Diagram::Box& box = diagram.boxes[i];
    const BoxPlace& p = places[i];
    out += cat("<g class=\"", class_of(box.kind), "\"><rect x=\"", p.x, "\" y=\"", p.y, "\" width=\"",
               p.width, "\" height=\"", kBoxHeight, "\" rx=\"4\"/><text x=\"", p.x + 7, "\" y=\"", p.y + 17,
               "\">", escape_markup(printable(shortened(box.label, kLabel))), "</text><title>",
               escape_markup(printable(box.detail)), "</title></g>\n");
  }
  return out + "</svg>\n";
}

}  // namespace stridec::cli
