#include "compiler/ops/composite/regex.h"

#include <algorithm>
#include <bitset>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::ops {
namespace {

using ByteSet = std::bitset<256>;
constexpr uint32_t kLastCode = 0x10FFFF;
struct CodeRange {
  uint32_t low, high;  // code points
};
using Ranges = std::vector<CodeRange>;

[[noreturn]] void malformed(const std::string& why) {
  fail(ErrorKind::kMalformed, "regex", "the regular expression is malformed: " + why);
}
[[noreturn]] void unsupported(const std::string& what) {
  fail(ErrorKind::kUnsupported, "regex", "regular expressions with " + what + " are not supported");
}

// Condition of an empty transition, about the bytes on both sides.
enum class Look : uint8_t { kNothing, kStart, kEnd, kBoundary, kInside };

// Thompson's NFA. A state has a transition on a set of bytes, or up to two empty transitions.
struct State {
  ByteSet on;
  int next = -1, free[2] = {-1, -1};
  Look look = Look::kNothing;
};
struct Piece {
  int start, end;  // `end` has no transitions yet
};

Ranges complement(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](CodeRange a, CodeRange b) { return a.low < b.low; });
  Ranges out;
  uint32_t from = 1;  // strings hold no zero byte
  for (const CodeRange& r : ranges) {
    if (r.low > from) out.push_back({from, r.low - 1});
    from = std::max(from, r.high + 1);
  }
  if (from <= kLastCode) out.push_back({from, kLastCode});
  return out;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Piece whole() {
    const Piece p = alternatives(0);
    if (at_ < text_.size()) malformed("unexpected )");
    return p;
  }
  std::vector<State> states;

 private:
  // ---- NFA construction
  int state() {
    if (states.size() > 100'000) unsupported("so many repetitions");
    states.emplace_back();
    return static_cast<int>(states.size()) - 1;
  }
  State& operator[](int s) { return states[static_cast<size_t>(s)]; }
  void step(int from, int to) {
    State& s = (*this)[from];
    s.free[s.free[0] >= 0] = to;
  }
  Piece nothing() {
    const int s = state();
    return {s, s};
  }
  Piece looking(Look look) {
    const int start = state(), end = state();
    (*this)[start].look = look;
    step(start, end);
    return {start, end};
  }
  Piece in_order(Piece a, Piece b) {
    step(a.end, b.start);
    return {a.start, b.end};
  }
  Piece either(Piece a, Piece b) {
    const int start = state(), end = state();
    step(start, a.start);
    step(start, b.start);
    step(a.end, end);
    step(b.end, end);
    return {start, end};
  }
  Piece repeated(Piece a, bool at_least_once) {
    const int start = state(), end = state();
    step(start, a.start);
    if (!at_least_once) step(start, end);
    const int again = state();
    step(a.end, again);
    step(again, a.start);
    step(again, end);
    return {start, end};
  }
  Piece bytes(const ByteSet& set) {
    const int start = state(), end = state();
    (*this)[start].on = set;
    (*this)[start].next = end;
    return {start, end};
  }
  Piece byte_range(uint32_t low, uint32_t high) {
    ByteSet set;
    for (uint32_t b = low; b <= high; ++b) set.set(b);
    return bytes(set);
  }

  // Code points low..high, all with UTF-8 encodings of `length` bytes.
  Piece utf8(uint32_t low, uint32_t high, int length) {
    if (length == 1) return byte_range(low, high);
    static constexpr uint32_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    return utf8_tail(kLead[length] | low >> 6 * (length - 1), kLead[length] | high >> 6 * (length - 1), low,
                     high, length - 1);
  }
  Piece utf8_tail(uint32_t first, uint32_t last, uint32_t low, uint32_t high, int left) {
    const auto byte = [](uint32_t code, int place) { return 0x80u | (code >> 6 * place & 63); };
    if (left == 0) return byte_range(first, last);
    const uint32_t mask = (1u << 6 * left) - 1;
    if (first == last)
      return in_order(byte_range(first, first), utf8_tail(byte(low, left - 1), byte(high, left - 1),
                                                          low & mask, high & mask, left - 1));
    // The partial ranges at both ends, and the complete middle range.
    std::optional<Piece> out;
    const auto add = [&](uint32_t f, uint32_t l, uint32_t lo, uint32_t hi) {
      const Piece p =
          in_order(byte_range(f, l), utf8_tail(byte(lo, left - 1), byte(hi, left - 1), lo, hi, left - 1));
      out = out ? either(*out, p) : p;
    };
    if ((low & mask) != 0) add(first, first, low & mask, mask), ++first;
    const bool cut = (high & mask) != mask;
    if (cut) --last;
    if (first <= last) {
      Piece any = byte_range(first, last);
      for (int i = 0; i < left; ++i) any = in_order(any, byte_range(0x80, 0xBF));
      out = out ? either(*out, any) : any;
    }
    if (cut) add(last + 1, last + 1, 0, high & mask);
    return *out;
  }
  Piece of_codes(const Ranges& ranges) {
    static constexpr CodeRange kLengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLastCode}};
    std::optional<Piece> out;
    for (const CodeRange& r : ranges)
      for (int length = 1; length <= 4; ++length) {
        const uint32_t low = std::max(r.low, kLengths[length - 1].low),
                       high = std::min(r.high, kLengths[length - 1].high);
        if (low > high) continue;
        const Piece p = utf8(low, high, length);
        out = out ? either(*out, p) : p;
      }
    return out ? *out : bytes({});  // matches nothing
  }

  // ---- syntax
  bool more() const { return at_ < text_.size(); }
  bool eat(std::string_view s) {
    if (text_.compare(at_, s.size(), s) != 0) return false;
    at_ += s.size();
    return true;
  }
  uint32_t code() {  // one code point of UTF-8
    const auto lead = static_cast<uint8_t>(text_[at_++]);
    int left = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    uint32_t out = left == 3 ? lead & 7 : left == 2 ? lead & 15 : left == 1 ? lead & 31 : lead;
    while (left-- > 0) {
      if (!more()) malformed("it is not UTF-8");
      out = out << 6 | (static_cast<uint8_t>(text_[at_++]) & 63);
    }
    return out;
  }

  Piece alternatives(int depth) {
    if (depth > 200) malformed("groups are nested too deep");
    const bool outer_fold = fold_, outer_dot = dot_all_;
    Piece out = sequence(depth);
    while (eat("|")) out = either(out, sequence(depth));
    fold_ = outer_fold, dot_all_ = outer_dot;
    return out;
  }

  Piece sequence(int depth) {
    Piece out = nothing();
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      out = in_order(out, quantified(depth));
    }
    return out;
  }

  Piece quantified(int depth) {
    const size_t from = at_;
    const bool fold = fold_, dot = dot_all_;
    Piece p = atom(depth);
    // Parses the same atom again, to copy it.
    const auto again = [&] {
      const size_t here = at_;
      const bool fold_here = fold_, dot_here = dot_all_;
      at_ = from, fold_ = fold, dot_all_ = dot;
      const Piece copy = atom(depth);
      at_ = here, fold_ = fold_here, dot_all_ = dot_here;
      return copy;
    };
    while (more()) {
      if (eat("*")) {
        p = repeated(p, false);
      } else if (eat("+")) {
        p = repeated(p, true);
      } else if (eat("?")) {
        p = either(p, nothing());
      } else if (const auto bounds = counted()) {
        const auto [low, high] = *bounds;
        if (low > 1000 || high > 1000 || (high >= 0 && high < low))
          malformed("a repeat count is out of range");
        Piece out = low > 0 ? p : nothing();
        for (int64_t i = 1; i < low; ++i) out = in_order(out, again());
        if (high < 0) out = in_order(out, repeated(low > 0 ? again() : p, false));
        for (int64_t i = low; i < high; ++i)
          out = in_order(out, either(low == 0 && i == 0 ? p : again(), nothing()));
        return eat("?"), out;
      } else {
        break;
      }
      eat("?");  // greedy or not makes no difference to a whole match
      break;
    }
    return p;
  }

  std::optional<std::pair<int64_t, int64_t>> counted() {
    const size_t start = at_;
    const auto digits = [&]() -> std::optional<int64_t> {
      const size_t from = at_;
      int64_t n = 0;
      while (more() && text_[at_] >= '0' && text_[at_] <= '9' && n < 100'000)
        n = n * 10 + (text_[at_++] - '0');
      return at_ > from ? std::optional(n) : std::nullopt;
    };
    if (eat("{")) {
      if (const auto low = digits()) {
        if (eat("}")) return std::pair(*low, *low);
        if (eat(",")) {
          const auto high = digits();
          if (eat("}")) return std::pair(*low, high.value_or(-1));
        }
      }
    }
    at_ = start;
    return std::nullopt;  // a brace that is an ordinary character
  }

  Piece atom(int depth) {
    if (eat("(")) {
      if (eat("?P<") || eat("?<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string::npos) malformed("a group's name does not end");
        at_ = end + 1;
      } else if (eat("?")) {
        bool on = true;
        while (more() && text_[at_] != ':' && text_[at_] != ')') {
          const char flag = text_[at_++];
          if (flag == '-')
            on = false;
          else if (flag == 'i')
            fold_ = on;
          else if (flag == 's')
            dot_all_ = on;
          else if (flag != 'U')
            unsupported(cat("the flag ", flag));
        }
        if (eat(")")) return nothing();
        if (!eat(":")) malformed("a group of flags does not end");
      }
      const Piece p = alternatives(depth + 1);
      if (!eat(")")) malformed("a group does not end");
      return p;
    }
    if (eat("^") || eat("\\A")) return looking(Look::kStart);
    if (eat("$") || eat("\\z")) return looking(Look::kEnd);
    if (eat("\\b")) return looking(Look::kBoundary);
    if (eat("\\B")) return looking(Look::kInside);
    if (eat("[")) return of_codes(set());
    if (eat(".")) return of_codes(dot_all_ ? complement({}) : complement({{'\n', '\n'}}));
    if (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?') malformed("nothing to repeat");
    if (eat("\\")) return of_codes(folded(escape()));
    const uint32_t c = code();
    return of_codes(folded({{c, c}}));
  }

  Ranges folded(Ranges ranges) const {
    if (!fold_) return ranges;
    const size_t n = ranges.size();
    for (size_t i = 0; i < n; ++i) {
      const auto other = [&](uint32_t low, uint32_t high, int by) {
        low = std::max(low, ranges[i].low), high = std::min(high, ranges[i].high);
        if (low <= high)
          ranges.push_back({low + static_cast<uint32_t>(by), high + static_cast<uint32_t>(by)});
      };
      other('a', 'z', 'A' - 'a');
      other('A', 'Z', 'a' - 'A');
    }
    return ranges;
  }

  Ranges escape() {
    if (!more()) malformed("it ends with a backslash");
    const char c = text_[at_++];
    const Ranges digits{{'0', '9'}}, word{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
        space{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
    const auto one = [](uint32_t v) { return Ranges{{v, v}}; };
    switch (c) {
      case 'd': return digits;
      case 'D': return complement(digits);
      case 'w': return word;
      case 'W': return complement(word);
      case 's': return space;
      case 'S': return complement(space);
      case 'n': return one('\n');
      case 't': return one('\t');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'a': return one('\a');
      case 'x': return one(hexadecimal());
      default: break;
    }
    if (static_cast<uint8_t>(c) < 0x80 && (std::isalnum(static_cast<unsigned char>(c)) != 0))
      unsupported(cat("\\", c));
    --at_;
    return one(code());
  }

  uint32_t hexadecimal() {
    const bool braces = eat("{");
    uint32_t v = 0;
    for (int digits = 0; more() && (braces ? text_[at_] != '}' : digits < 2); ++digits) {
      const char c = text_[at_++];
      if (!std::isxdigit(static_cast<unsigned char>(c)) || v > kLastCode)
        malformed("a bad hexadecimal number");
      v = v * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if ((braces && !eat("}")) || v > kLastCode) malformed("a bad hexadecimal number");
    return v;
  }

  Ranges set() {
    const bool inverted = eat("^");
    Ranges out;
    for (bool first = true; first || !eat("]"); first = false) {
      if (!more()) malformed("a class does not end");
      if (eat("[:")) {
        const size_t end = text_.find(":]", at_);
        if (end == std::string::npos) malformed("a class does not end");
        const Ranges named = class_of(text_.substr(at_, end - at_));
        out.insert(out.end(), named.begin(), named.end());
        at_ = end + 2;
        continue;
      }
      const auto member = [&]() -> Ranges {
        if (eat("\\")) return escape();
        const uint32_t c = code();
        return {{c, c}};
      };
      const Ranges low = member();
      const bool one = low.size() == 1 && low[0].low == low[0].high;
      if (one && more() && text_[at_] == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const Ranges high = member();
        if (high.size() != 1 || high[0].low < low[0].low) malformed("a bad range in a class");
        out.push_back({low[0].low, high[0].low});
      } else {
        out.insert(out.end(), low.begin(), low.end());
      }
    }
    out = folded(std::move(out));
    return inverted ? complement(std::move(out)) : out;
  }

  static Ranges class_of(const std::string& name) {
    static const std::map<std::string, Ranges> kClasses = {
        {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
        {"digit", {{'0', '9'}}},
        {"lower", {{'a', 'z'}}},
        {"upper", {{'A', 'Z'}}},
        {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
        {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
        {"space", {{'\t', '\r'}, {' ', ' '}}},
        {"blank", {{'\t', '\t'}, {' ', ' '}}},
        {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
        {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
        {"print", {{' ', '~'}}},
        {"graph", {{'!', '~'}}},
        {"cntrl", {{1, 31}, {127, 127}}},
        {"ascii", {{1, 127}}}};
    const bool inverted = !name.empty() && name[0] == '^';
    const auto it = kClasses.find(inverted ? name.substr(1) : name);
    if (it == kClasses.end()) malformed("a class [:" + name + ":]");
    return inverted ? complement(it->second) : it->second;
  }

  const std::string& text_;
  size_t at_ = 0;
  bool fold_ = false, dot_all_ = false;
};

using Set = std::vector<int>;  // states, sorted

// Kind of the byte next to a position in the text.
enum class Side : uint8_t { kNone, kWord, kOther };
Side side_of(size_t byte) {
  return std::isalnum(static_cast<int>(byte)) != 0 || byte == '_' ? Side::kWord : Side::kOther;
}

bool holds(Look look, Side before, Side after) {
  const bool boundary = (before == Side::kWord) != (after == Side::kWord);
  switch (look) {
    case Look::kNothing: return true;
    case Look::kStart: return before == Side::kNone;
    case Look::kEnd: return after == Side::kNone;
    case Look::kBoundary: return boundary;
    case Look::kInside: return !boundary;
  }
  return false;
}

Set reachable(const std::vector<State>& states, const Set& from, Side before, Side after) {
  Set out, open = from;
  std::vector<char> seen(states.size(), 0);
  while (!open.empty()) {
    const int s = open.back();
    open.pop_back();
    if (std::exchange(seen[static_cast<size_t>(s)], 1)) continue;
    out.push_back(s);
    const State& state = states[static_cast<size_t>(s)];
    if (!holds(state.look, before, after)) continue;
    for (int next : state.free)
      if (next >= 0) open.push_back(next);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

// Subset construction. A table state is a set of NFA states before empty transitions, which are taken when
// the next byte is known.
RegexTable compile_regex(const std::string& pattern) {
  Parser parser(pattern);
  const Piece piece = parser.whole();
  const std::vector<State>& states = parser.states;
  const bool looks =
      std::any_of(states.begin(), states.end(), [](const State& s) { return s.look != Look::kNothing; });
  RegexTable table;
  using Key = std::pair<Side, Set>;
  std::map<Key, int32_t> numbers;
  std::vector<Key> keys;
  const auto number = [&](Side before, Set set) {
    const auto [it, fresh] =
        numbers.emplace(Key{looks ? before : Side::kNone, std::move(set)}, static_cast<int32_t>(keys.size()));
    if (fresh) {
      if (static_cast<int64_t>(keys.size()) >= kMaxRegexStates) unsupported("so many states");
      keys.push_back(it->first);
    }
    return it->second;
  };
  number(Side::kNone, {piece.start});
  for (size_t k = 0; k < keys.size(); ++k) {
    const auto [before, from] = keys[k];
    const Set last = reachable(states, from, before, Side::kNone),
              word = reachable(states, from, before, Side::kWord),
              other = reachable(states, from, before, Side::kOther);
    table.accepts.push_back(std::binary_search(last.begin(), last.end(), piece.end));
    table.next.push_back(static_cast<int32_t>(k));
    for (size_t byte = 1; byte < 256; ++byte) {
      Set next;
      for (int state : side_of(byte) == Side::kWord ? word : other) {
        const State& s = states[static_cast<size_t>(state)];
        if (s.next >= 0 && s.on[byte]) next.push_back(s.next);
      }
      std::sort(next.begin(), next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
      table.next.push_back(number(side_of(byte), std::move(next)));
    }
  }
  return table;
}

}  // namespace stridec::ops
