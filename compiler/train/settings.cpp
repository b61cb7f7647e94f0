#include "compiler/train/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/train/learning_rate.h"
#include "compiler/train/losses.h"
#include "compiler/train/optimizers.h"

namespace stridec::train {
namespace {

[[noreturn]] void refuse(const std::string& message, const std::string& help) {
  fail(ErrorKind::kUsage, "bad-train", cat("--train: ", message), help);
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

double number(const std::string& key, std::string_view text) {
  if (!is_number(text)) refuse(cat(key, "='", text, "' is not a number"), cat("write ", key, "=0.1"));
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (!std::isfinite(value)) refuse(cat(key, " is ", text), "it must be a finite number");
  return value;
}

// The shortest text that parses to the number.
std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

template <class Rows>
std::string names(const Rows& rows) {
  std::string out;
  for (const auto& row : rows) out += cat(out.empty() ? "" : ", ", row.name);
  return out;
}

bool has(std::span<const Setting> settings, std::string_view name) {
  return std::ranges::find(settings, name, &Setting::name) != settings.end();
}

// Splits at commas outside parentheses.
std::vector<std::string> items(std::string_view text) {
  std::vector<std::string> out;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > from) out.emplace_back(text.substr(from, i - from));
    from = i + 1;
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(at, from), text.size());
    if (end > from) out.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

// "*.bias|*norm*(weight_decay=0,lr_scale=0.1)"
Group parse_group(const std::string& key, const std::string& text, const char* example) {
  const size_t open = text.find('(');
  if (open == std::string::npos || open == 0 || text.back() != ')')
    refuse(cat(key, "='", text, "' is not of the form PATTERN|...(name=number,...)"), cat("write ", example));
  Group group{.patterns = split(text.substr(0, open), '|'), .settings = {}};
  for (const std::string& item : items(std::string_view(text).substr(open + 1, text.size() - open - 2))) {
    const size_t equals = std::min(item.find('='), item.size());
    group.settings[item.substr(0, equals)] =
        number(item, equals == item.size() ? "" : item.substr(equals + 1));
  }
  return group;
}

std::string group_text(const std::string& key, const Group& group) {
  std::string settings;
  for (const auto& [name, value] : group.settings)
    settings += cat(settings.empty() ? "" : ",", name, "=", number_text(value));
  return cat(key, "=", join(group.patterns, "|"), "(", settings, ")");
}

// "*q_proj*|*v_proj*(rank=8,alpha=16,seed=0)"
Lora parse_lora(const std::string& text) {
  const Group group = parse_group("lora", text, "lora=*q_proj*|*v_proj*(rank=8,alpha=16)");
  Lora lora{.targets = group.patterns};
  std::optional<double> alpha;
  const auto whole = [](const std::string& name, double value, double least) {
    if (value != std::floor(value) || value < least || value > 1e9)
      refuse(cat("lora: ", name, " is ", number_text(value)),
             cat("it is a whole number from ", least, " on"));
    return static_cast<int64_t>(value);
  };
  for (const auto& [name, value] : group.settings) {
    if (name == "rank")
      lora.rank = whole(name, value, 1);
    else if (name == "alpha")
      alpha = value;
    else if (name == "seed")
      lora.seed = static_cast<uint64_t>(whole(name, value, 0));
    else
      refuse(cat("lora has no setting '", name, "'"), "it has rank, alpha, seed");
  }
  lora.alpha = alpha.value_or(static_cast<double>(lora.rank));
  return lora;
}

constexpr Setting kCommon[] = {
    {"loss", "", "a row of losses()"},
    {"optimizer", "adamw", "a row of optimizers()"},
    {"lr", "the optimizer's", "a number, input, or a schedule"},
    {"grad_norm", "true", "whether a step returns the norm of all gradients", "true|false"},
    {"clip_norm", "0", "limits the norm of all gradients together"},
    {"clip_value", "0", "limits each element of a gradient"},
    {"loss_scale", "dynamic for f16", "dynamic, none", "dynamic|none"},
    {"states", "as they are", "bf16: f32 weights and states are kept in bf16, rounded at random", "bf16"},
    {"ema", "0", "decay of a moving average of the weights"},
    {"group", "none", "settings of the optimizer for some weights"},
    {"lora", "none", "weights that get low-rank adapters"},
    {"trainable", "*", "names of the weights that are trained"},
    {"freeze", "none", "names of weights that are not trained"},
    {"functions", "train_step+eval+predict", "those the artifact has"},
};

// The range of a number, whatever has it; PyTorch refuses the others.
struct SettingRange {
  std::string_view owner;  // a loss or an optimizer; "": all that have the setting
  std::string_view name;
  bool (*holds)(double value);
  std::string_view sentence;
};
bool not_negative(double x) { return x >= 0; }
bool above_zero(double x) { return x > 0; }
bool is_decay(double x) { return x >= 0 && x < 1; }
bool is_share(double x) { return x >= 0 && x <= 1; }
bool is_whole(double x) { return x == std::floor(x); }
bool is_flag(double x) { return x == 0 || x == 1; }
constexpr std::string_view kNotNegative = "it must be at least 0", kAboveZero = "it must be above 0",
                           kDecay = "a decay must be at least 0 and below 1", kWhole = "it is a whole number",
                           kFlag = "it is 0 or 1";
constexpr SettingRange kRanges[] = {
    {"", "beta1", is_decay, kDecay},
    {"", "beta2", is_decay, kDecay},
    {"", "rho", is_share, "it is a number from 0 to 1"},
    {"rmsprop", "alpha", not_negative, kNotNegative},
    {"", "eps", not_negative, kNotNegative},
    {"", "eps2", not_negative, kNotNegative},
    {"", "weight_decay", not_negative, kNotNegative},
    {"", "momentum", not_negative, kNotNegative},
    {"", "momentum_decay", not_negative, kNotNegative},
    {"", "lr_decay", not_negative, kNotNegative},
    {"", "lr_scale", not_negative, kNotNegative},
    {"", "other_lr", not_negative, kNotNegative},
    {"", "beta2_decay", [](double x) { return x <= 0; }, "it must be at most 0"},
    {"adafactor", "d", [](double x) { return x >= 1; }, "it must be at least 1"},
    {"", "nesterov", is_flag, kFlag},
    {"", "amsgrad", is_flag, kFlag},
    {"", "centered", is_flag, kFlag},
    {"", "label_smoothing", is_share, "it is a number from 0 to 1"},
    {"", "ignore_index", is_whole, kWhole},
    {"", "class_dim", is_whole, kWhole},
    {"", "blank", [](double x) { return is_whole(x) && x >= 0; }, "it is a whole number from 0 on"},
    {"huber", "delta", above_zero, kAboveZero},
    {"smooth_l1", "beta", not_negative, kNotNegative},
    {"triplet", "margin", above_zero, kAboveZero},
    {"info_nce", "temperature", above_zero, kAboveZero},
};

void check_range(std::string_view owner, std::string_view name, double value) {
  for (const SettingRange& range : kRanges)
    if (range.name == name && (range.owner.empty() || range.owner == owner) && !range.holds(value))
      refuse(cat(name, " is ", number_text(value)), std::string(range.sentence));
}

const Setting& common_setting(std::string_view name) {
  return *std::ranges::find(kCommon, name, &Setting::name);
}

// Throws if the setting takes certain texts alone, and `value` is another.
void check_choice(const Setting& setting, const std::string& value) {
  const std::vector<std::string> choices = split(std::string(setting.choices), '|');
  if (choices.empty() || std::ranges::count(choices, value) > 0) return;
  refuse(cat(setting.name, " is '", value, "'"),
         cat("write ",
             join(choices, " or ", [&](const std::string& each) { return cat(setting.name, "=", each); }),
             choices.size() == 1 ? ", or leave it out" : ""));
}

constexpr const char* kFunctions[] = {"train_step", "accumulate", "apply", "eval", "predict"};

const Loss& loss_of(const Settings& s) {
  if (s.loss.empty()) refuse("no loss is given", cat("write loss=NAME; there are ", names(losses())));
  const Loss* loss = find_loss(s.loss);
  if (!loss) refuse(cat("there is no loss '", s.loss, "'"), cat("there are ", names(losses())));
  return *loss;
}
const Optimizer& optimizer_of(const Settings& s) {
  const Optimizer* optimizer = find_optimizer(s.optimizer);
  if (!optimizer)
    refuse(cat("there is no optimizer '", s.optimizer, "'"), cat("there are ", names(optimizers())));
  return *optimizer;
}

}  // namespace

std::span<const Setting> common_settings() { return kCommon; }

Settings parse_settings(std::string_view text) {
  Settings out;
  std::vector<std::pair<std::string, std::string>> rest;
  bool selected = false;
  for (const std::string& item : items(text)) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size())
      refuse(cat("'", item, "' is not of the form name=value"), "write loss=cross_entropy,optimizer=adamw");
    std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "loss")
      out.loss = value;
    else if (key == "optimizer")
      out.optimizer = value;
    else if (key == "lr")
      out.learning_rate = value;
    else if (key == "grad_norm")
      check_choice(common_setting(key), value), out.grad_norm = value == "true";
    else if (key == "clip_norm")
      out.clip_norm = number(key, value);
    else if (key == "clip_value")
      out.clip_value = number(key, value);
    else if (key == "loss_scale")
      out.loss_scale = value;
    else if (key == "states")
      out.states = value;
    else if (key == "ema")
      out.ema = number(key, value);
    else if (key == "functions")
      out.functions = split(value, '+');
    else if (key == "trainable")
      out.trainable = split(value, '|'), selected = true;
    else if (key == "freeze")
      out.frozen = split(value, '|');
    else if (key == "group")
      out.groups.push_back(parse_group(key, value, "group=*.bias|*norm*(weight_decay=0)"));
    else if (key == "lora")
      out.lora = parse_lora(value);
    else
      rest.emplace_back(std::move(key), std::move(value));
  }
  if (out.lora && !selected) out.trainable.clear();
  if (const size_t colon = out.loss.find(':'); colon != std::string::npos) {  // output:NAME
    out.of_loss["output"] = out.loss.substr(colon + 1);
    out.loss.resize(colon);
  }
  const Loss& loss = loss_of(out);
  const Optimizer& optimizer = optimizer_of(out);
  for (const auto& [key, value] : rest) {
    if (has(loss.settings, key))
      out.of_loss[key] = value;
    else if (has(optimizer.settings, key))
      out.of_optimizer[key] = number(key, value);
    else
      refuse(cat("neither the loss ", loss.name, " nor the optimizer ", optimizer.name, " has a setting '",
                 key, "'"),
             cat(loss.name, " has ", names(loss.settings), "; ", optimizer.name, " has ",
                 names(optimizer.settings), "; every training has ", names(common_settings())));
  }
  return out;
}

void check(const Settings& s) {
  const Loss& loss = loss_of(s);
  const Optimizer& optimizer = optimizer_of(s);
  for (const auto& [key, value] : s.of_loss)
    if (!has(loss.settings, key))
      refuse(cat("the loss ", loss.name, " has no setting '", key, "'"),
             cat("it has ", names(loss.settings)));
  for (const Setting& setting : loss.settings)
    if (setting.standard.empty() && !s.of_loss.contains(std::string(setting.name)))
      refuse(cat("the loss ", loss.name, " needs ", setting.name, ": ", setting.meaning),
             cat("write ", setting.name, "=NAME"));
  for (const Setting& setting : loss.settings)
    if (const auto given = s.of_loss.find(std::string(setting.name)); given != s.of_loss.end()) {
      check_choice(setting, given->second);
      if (is_number(setting.standard))
        check_range(loss.name, given->first, number(given->first, given->second));
    }
  const auto check_numbers = [&](const std::map<std::string, double>& numbers, bool group) {
    for (const auto& [key, value] : numbers) {
      if (!has(optimizer.settings, key) && !(group && key == "lr_scale"))
        refuse(cat("the optimizer ", optimizer.name, " has no setting '", key, "'"),
               cat("it has ", names(optimizer.settings), group ? ", lr_scale" : ""));
      check_range(optimizer.name, key, value);
    }
  };
  check_numbers(s.of_optimizer, false);
  for (const Group& group : s.groups) check_numbers(group.settings, true);
  const auto numbers_of = [&](std::string_view name) {
    const auto given = s.of_optimizer.find(std::string(name));
    return given == s.of_optimizer.end() ? 0 : given->second;
  };
  if (optimizer.name == "sgd" && numbers_of("nesterov") != 0 &&
      (numbers_of("momentum") == 0 || numbers_of("dampening") != 0))
    refuse("nesterov=1 needs a momentum above 0 and no dampening",
           "write momentum=0.9 and leave dampening out");
  for (const auto& [name, value] :
       {std::pair("clip_norm", s.clip_norm), std::pair("clip_value", s.clip_value)})
    if (value < 0)
      refuse(cat(name, " is ", number_text(value)),
             cat(kNotNegative, ", and 0 means that there is no limit"));
  for (const auto& [name, value] : {std::pair("loss_scale", s.loss_scale), std::pair("states", s.states)})
    if (!value.empty()) check_choice(common_setting(name), value);
  if (s.ema < 0 || s.ema >= 1) refuse(cat("ema is ", s.ema), "a decay must be at least 0 and below 1");
  if (!s.learning_rate.empty()) check_rate(s.learning_rate);
  for (const std::string& function : s.functions)
    if (std::ranges::find(kFunctions, function) == std::end(kFunctions))
      refuse(
          cat("there is no function '", function, "'"),
          "there are train_step (a whole step), accumulate and apply (a step in two parts), eval (loss and "
          "outputs) and predict (outputs); write functions=train_step+predict");
  if (s.functions.empty()) refuse("no function is asked for", "write functions=train_step+predict");
}

std::string to_string(const Settings& s) {
  const Loss& loss = loss_of(s);
  const Optimizer& optimizer = optimizer_of(s);
  std::string out = cat("loss=", s.loss);
  for (const Setting& setting : loss.settings) {
    const auto given = s.of_loss.find(std::string(setting.name));
    const std::string_view value =
        given == s.of_loss.end() ? setting.standard : std::string_view(given->second);
    if (value != "none") out += cat(",", setting.name, "=", value);
  }
  out += cat(",optimizer=", s.optimizer);
  for (const Setting& setting : optimizer.settings) {
    if (setting.name == "lr") {
      out += cat(",lr=", s.learning_rate.empty() ? setting.standard : std::string_view(s.learning_rate));
      continue;
    }
    const auto given = s.of_optimizer.find(std::string(setting.name));
    out += cat(",", setting.name, "=",
               given == s.of_optimizer.end() ? std::string(setting.standard) : number_text(given->second));
  }
  if (!s.grad_norm) out += ",grad_norm=false";
  if (s.clip_norm > 0) out += cat(",clip_norm=", number_text(s.clip_norm));
  if (s.clip_value > 0) out += cat(",clip_value=", number_text(s.clip_value));
  if (!s.loss_scale.empty()) out += cat(",loss_scale=", s.loss_scale);
  if (!s.states.empty()) out += cat(",states=", s.states);
  if (s.ema > 0) out += cat(",ema=", number_text(s.ema));
  for (const Group& group : s.groups) out += cat(",", group_text("group", group));
  if (s.lora)
    out += cat(",", group_text("lora", {.patterns = s.lora->targets,
                                        .settings = {{"rank", static_cast<double>(s.lora->rank)},
                                                     {"alpha", s.lora->alpha},
                                                     {"seed", static_cast<double>(s.lora->seed)}}}));
  if (!s.trainable.empty()) out += cat(",trainable=", join(s.trainable, "|"));
  if (!s.frozen.empty()) out += cat(",freeze=", join(s.frozen, "|"));
  return out + cat(",functions=", join(s.functions, "+"));
}

}  // namespace stridec::train
