// Draws of PyTorch's generator on NVIDIA GPUs (at::CUDAGeneratorImpl): which words of Philox 4x32-10 belong
// to an element of a tensor. The implementation of the routine "philox_draw" of library.def.
//
// This text is compiled into the interpreter and pasted into kernels, so it includes no header; int64_t is
// predefined.
//
// Generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Its key is the seed. The
// upper half of the counter is a thread of PyTorch's kernel, the lower half how many blocks of four words the
// thread has drawn before. PyTorch starts blocks of 256 threads, as many as elements, up to those that the
// device holds at once.

namespace stridec::philox {

typedef unsigned int Word;
typedef unsigned long long Wide;

// What a call draws.
enum What : int64_t {
  kWords = 0,
  kWideWords = 1,
  kNormals = 2,
  kWideNormals = 3,
  kLogarithms = 4,
  kExponentials = 5,
  kFirstWords = 6,
};

struct Block {
  Word word[4];
};

inline Block block(Wide seed, Wide thread, Wide call) {
  Word c[4] = {(Word)call, (Word)(call >> 32), (Word)thread, (Word)(thread >> 32)};
  Word key[2] = {(Word)seed, (Word)(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const Wide a = (Wide)0xD2511F53u * c[0], b = (Wide)0xCD9E8D57u * c[2];
    c[0] = (Word)(b >> 32) ^ c[1] ^ key[0];
    c[2] = (Word)(a >> 32) ^ c[3] ^ key[1];
    c[1] = (Word)b;
    c[3] = (Word)a;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// Where the numbers of an element are: lane `lane` of the block that `thread` draws after `call` others.
struct Place {
  Wide thread, call;
  int lane;
};

// How the elements of a tensor are dealt to threads.
//   layout 0   element i is of thread i mod threads, and the next `lanes` elements of a thread share a block
//   layout v   runs of v elements; a run takes its own blocks
//   layout -v  likewise, with a thread for each run
struct Deal {
  int64_t what, count, threads, layout;
  int lanes;  // numbers in a block

  // state: the seed, the offset, and how many threads the device holds at once.
  Deal(const int64_t* state, int64_t what, int64_t count, int64_t layout)
      : what(what),
        count(count),
        threads((count + 255) / 256 * 256),
        layout(layout),
        lanes(what == kWideWords || what == kWideNormals ? 2 : 4) {
    if (layout >= 0 && state[2] >= 256 && threads > state[2]) threads = state[2] / 256 * 256;
  }

  Place place(int64_t i) const {
    if (layout == 0) {
      const int64_t turn = i / threads;
      return {(Wide)(i - turn * threads), (Wide)(turn / lanes), (int)(turn % lanes)};
    }
    const int64_t size = layout < 0 ? -layout : layout, run = i / size, turn = run / threads,
                  own = i - run * size;
    return {(Wide)(run - turn * threads), (Wide)(turn * ((size + 3) / 4) + own / 4), (int)(own % 4)};
  }
  // By how much the offset advances.
  int64_t advance() const {
    if (count == 0) return 0;
    if (what == kFirstWords) return (count / -layout + 3) / 4 * 4;
    if (layout < 0) return 12;
    return ((count - 1) / (threads * (layout == 0 ? lanes : 4)) + 1) * 4;
  }
};

// The words of an element, after those that `offset` counts.
inline Block block_of(const int64_t* state, const Place& place) {
  return block((Wide)state[0], place.thread, (Wide)state[1] / 4 + place.call);
}

inline int64_t wide_word(const Block& b, int lane) {
  return (int64_t)((Wide)b.word[2 * lane] << 32 | b.word[2 * lane + 1]);
}
// In (0, 1].
inline float uniform(Word x) { return (float)x * 0x1p-32f + 0x1p-33f; }
inline double uniform(Word x, Word y) { return (double)((Wide)x ^ (Wide)y << 21) * 0x1p-53 + 0x1p-54; }

// Box and Muller's pairs, the sine before the cosine. Math has log, sin, cos and sqrt of doubles.
template <class Math>
inline float normal(const Block& b, int lane) {
  constexpr float kTurn = 0x1p-32f * 6.2831855f;
  const float u = uniform(b.word[lane & 2]), y = (float)b.word[lane | 1];
#ifdef __CUDACC__
  float sine, cosine;
  __sincosf(__fmaf_rn(y, kTurn, kTurn / 2), &sine, &cosine);
  return (lane & 1 ? cosine : sine) * sqrtf(-2.0f * logf(u));
#else
  const double angle = (float)((double)y * (double)kTurn + (double)(kTurn / 2));
  return (float)((lane & 1 ? Math::cos(angle) : Math::sin(angle)) * Math::sqrt(-2.0 * Math::log(u)));
#endif
}
template <class Math>
inline double wide_normal(const Block& b, int lane) {
  const double radius = Math::sqrt(-2.0 * Math::log(uniform(b.word[0], b.word[1])));
  const double half_turns = uniform(b.word[2], b.word[3]) * 2;
#ifdef __CUDACC__
  double sine, cosine;
  sincospi(half_turns, &sine, &cosine);
  return (lane & 1 ? cosine : sine) * radius;
#else
  const double angle = half_turns * 3.14159265358979323846;
  return (lane & 1 ? Math::cos(angle) : Math::sin(angle)) * radius;
#endif
}
template <class Math>
inline float logarithm(const Block& b, int lane) {
#ifdef __CUDACC__
  return __logf(uniform(b.word[lane]));
#else
  return (float)Math::log(uniform(b.word[lane]));
#endif
}

// At most half an epsilon below 0, as PyTorch's exponentials take it.
template <class Math>
inline float negative_logarithm(const Block& b, int lane) {
  return uniform(b.word[lane]) >= 1 - 0x1p-24f ? -0x1p-24f : logarithm<Math>(b, lane);
}

}  // namespace stridec::philox
