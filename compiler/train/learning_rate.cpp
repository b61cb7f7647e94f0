#include "compiler/train/learning_rate.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numbers>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"

namespace stridec::train {
namespace {

using namespace ops;
using graph::OpKind;

constexpr Schedule kSchedules[] = {
    {"constant", "constant(RATE, warmup=0)", "RATE"},
    {"linear", "linear(RATE, total=N, warmup=0, min=0)", "a line from RATE to min at t = total"},
    {"cosine", "cosine(RATE, total=N, warmup=0, min=0)", "half a cosine from RATE to min at t = total"},
    {"step", "step(RATE, every=N, gamma=0.1, warmup=0)", "RATE gamma^floor(t / every)"},
    {"exponential", "exponential(RATE, gamma=0.99, warmup=0)", "RATE gamma^t"},
    {"inverse_sqrt", "inverse_sqrt(RATE, warmup=1)", "RATE sqrt(warmup / t) after the warm-up"},
};

struct Parsed {
  std::string name;
  double rate = 0;
  std::map<std::string, double> numbers;
  double at(const std::string& key, double otherwise) const {
    const auto found = numbers.find(key);
    return found == numbers.end() ? otherwise : found->second;
  }
};

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  std::string forms;
  for (const Schedule& schedule : kSchedules) forms += cat(forms.empty() ? "" : ", ", schedule.form);
  fail(ErrorKind::kUsage, "bad-rate", cat("learning rate '", text, "': ", why),
       cat("write a number, 'input', or one of ", forms));
}

double number(const std::string& text, std::string_view item) {
  double value = 0;
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
  if (error != std::errc() || end != item.data() + item.size() || !(value >= 0 && value < 1e30))
    refuse(text, cat("'", item, "' is not a number of at least 0"));
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Parsed parse(const std::string& text) {
  const size_t open = text.find('(');
  if (open == std::string::npos) return {.name = "", .rate = number(text, text)};
  Parsed out{.name = text.substr(0, open)};
  const auto schedule = std::ranges::find(kSchedules, out.name, &Schedule::name);
  if (schedule == std::end(kSchedules)) refuse(text, cat("there is no schedule '", out.name, "'"));
  if (text.back() != ')') refuse(text, "the closing parenthesis is missing");
  std::string_view rest = std::string_view(text).substr(open + 1, text.size() - open - 2);
  bool first = true;
  while (!rest.empty() || first) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = item.find('=');
    if (first) {
      out.rate = number(text, item);
    } else {
      const std::string key(trimmed(item.substr(0, equals)));
      if (equals == std::string_view::npos || schedule->form.find(cat(" ", key, "=")) == std::string::npos)
        refuse(text, cat("'", item, "' is not a setting of it"));
      out.numbers[key] = number(text, trimmed(item.substr(equals + 1)));
    }
    first = false;
  }
  for (const char* needed : {"total", "every"})
    if (schedule->form.find(cat(" ", needed, "=N")) != std::string::npos && out.at(needed, 0) < 1)
      refuse(text, cat(needed, out.numbers.contains(needed) ? " must be at least 1" : " must be given"));
  if (const double total = out.at("total", 0); total > 0 && out.at("warmup", 0) > total)
    refuse(text, "warmup is longer than total");
  return out;
}

}  // namespace

std::span<const Schedule> schedules() { return kSchedules; }

bool is_input(const std::string& rate) { return rate == "input"; }

void check_rate(const std::string& rate) {
  if (!is_input(rate)) parse(rate);
}

Term rate_at(const std::string& rate, Term step) {
  const Parsed parsed = parse(rate);
  const Term base = number_like(step, parsed.rate);
  if (parsed.name.empty()) return base;
  const double warmup = parsed.at("warmup", parsed.name == "inverse_sqrt" ? 1 : 0), low = parsed.at("min", 0),
               total = parsed.at("total", 0);
  const Term t = step - 1.0;
  Term later = base;
  if (parsed.name == "linear" || parsed.name == "cosine") {
    const Term share = minimum(maximum((t - warmup) / std::max(total - warmup, 1.0), 0), 1);
    const Term left = parsed.name == "linear" ? subtract_from(1, share)
                                              : (apply(OpKind::kCos, share * std::numbers::pi) + 1.0) * 0.5;
    later = left * (parsed.rate - low) + low;
  } else if (parsed.name == "step" || parsed.name == "exponential") {
    const Term power = parsed.name == "step" ? apply(OpKind::kFloor, t / parsed.at("every", 1)) : t;
    const double gamma = parsed.at("gamma", parsed.name == "step" ? 0.1 : 0.99);
    later = base * pow(number_like(step, gamma), power);
  } else if (parsed.name == "inverse_sqrt") {
    later = base * sqrt(divide_into(warmup, maximum(t, std::max(warmup, 1.0))));
  }
  return warmup > 0 ? select(less(t, warmup), (t + 1.0) * (parsed.rate / warmup), later) : later;
}

}  // namespace stridec::train
