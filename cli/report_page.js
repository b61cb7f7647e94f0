// The script of `stridec report`. It reads the data in the page, makes no request, and inserts names as text, never as markup.
'use strict';
(() => {
  const report = JSON.parse(document.getElementById('report').textContent);
  const byId = id => document.getElementById(id);

  const element = (name, attributes = {}, text = '') => {
    const made = document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    made.textContent = text;
    return made;
  };
  const drawn = (name, attributes, title) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (title !== undefined) {
      const told = document.createElementNS('http://www.w3.org/2000/svg', 'title');
      told.textContent = title;
      made.append(told);
    }
    return made;
  };
  const label = (x, y, text, anchor = 'start') => {
    const made = drawn('text', {x, y, 'text-anchor': anchor});
    made.textContent = text;
    return made;
  };

  // ---- expressions of sizes: the grammar of compiler/sym/text.h, in whole numbers of any length
  const floordiv = (a, b) => {
    if (b === 0n) throw new RangeError('division by zero');
    const q = a / b;
    return a % b !== 0n && (a < 0n) !== (b < 0n) ? q - 1n : q;
  };
  const mod = (a, b) => a - floordiv(a, b) * b;
  const least = all => all.reduce((a, b) => b < a ? b : a), largest = all => all.reduce((a, b) => b > a ? b : a);
  const FUNCTIONS = {
    mod: a => mod(a[0], a[1]), min: least, max: largest, floordiv: a => floordiv(a[0], a[1]),
    ceildiv: a => -floordiv(-a[0], a[1]), align_up: a => -floordiv(-a[0], a[1]) * a[1],
    abs: a => a[0] < 0n ? -a[0] : a[0], select: a => a[0] !== 0n ? a[1] : a[2],
  };
  const TOKEN = /\s*(?:(\d+)|(%?[A-Za-z_][A-Za-z0-9_.]*)|`((?:[^`]|``)*)`|(\|\||&&|==|!=|<=|>=|\/\/|[-+*<>!(),]))/y;

  const compile = text => {
    const tokens = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < text.length) {
      const at = TOKEN.exec(text);
      if (!at) throw new SyntaxError('no expression: ' + text);
      tokens.push(at[1] !== undefined ? {number: BigInt(at[1])} :
                  at[2] !== undefined ? {name: at[2]} :
                  at[3] !== undefined ? {name: at[3].replaceAll('``', '`'), quoted: true} : {sign: at[4]});
    }
    let next = 0;
    const sign = (...any) => next < tokens.length && any.includes(tokens[next].sign) ? tokens[next++].sign : null;
    const expect = one => {
      if (!sign(one)) throw new SyntaxError(one + ' expected: ' + text);
    };
    const truth = value => value ? 1n : 0n;
    const left = (operand, operators) => () => {
      let a = operand();
      for (let op = sign(...Object.keys(operators)); op; op = sign(...Object.keys(operators))) {
        const x = a, y = operand(), apply = operators[op];
        a = env => apply(x(env), y(env));
      }
      return a;
    };
    const atom = () => {
      const token = tokens[next++] || {};
      if (token.number !== undefined) return () => token.number;
      if (token.sign === '(') {
        const inner = or();
        expect(')');
        return inner;
      }
      if (token.name === undefined) throw new SyntaxError('no operand: ' + text);
      if (!token.quoted && Object.hasOwn(FUNCTIONS, token.name) && sign('(')) {
        const args = [or()];
        while (sign(',')) args.push(or());
        expect(')');
        const apply = FUNCTIONS[token.name];
        if (token.name === 'select') return env => args[0](env) !== 0n ? args[1](env) : args[2](env);
        return env => apply(args.map(arg => arg(env)));
      }
      return env => {
        if (!env.has(token.name)) throw new RangeError('no size ' + token.name);
        return env.get(token.name);
      };
    };
    const unary = () => {
      if (!sign('-')) return atom();
      const a = unary();
      return env => -a(env);
    };
    const product = left(unary, {'*': (a, b) => a * b, '//': floordiv});
    const sum = left(product, {'+': (a, b) => a + b, '-': (a, b) => a - b});
    const comparison = () => {
      const a = sum(), op = sign('==', '!=', '<=', '>=', '<', '>');
      if (!op) return a;
      const b = sum();
      const holds = {'==': (x, y) => x === y, '!=': (x, y) => x !== y, '<': (x, y) => x < y,
                     '<=': (x, y) => x <= y, '>': (x, y) => x > y, '>=': (x, y) => x >= y}[op];
      return env => truth(holds(a(env), b(env)));
    };
    const not = () => {
      if (!sign('!')) return comparison();
      const a = not();
      return env => truth(a(env) === 0n);
    };
    const and = left(not, {'&&': (a, b) => truth(a !== 0n && b !== 0n)});
    const or = left(and, {'||': (a, b) => truth(a !== 0n || b !== 0n)});
    const made = or();
    if (next < tokens.length) throw new SyntaxError('text after the expression: ' + text);
    return made;
  };
  const known = new Map();
  // A BigInt; null where the expression has no value. `text`: an expression, or a number.
  const evaluate = (text, env) => {
    try {
      if (typeof text === 'number') return BigInt(text);
      if (!known.has(text)) known.set(text, compile(text));
      return known.get(text)(env);
    } catch (error) {
      return null;
    }
  };

  // ---- numbers as text
  const humanBytes = bytes => {
    let value = Number(bytes), unit = 0;
    const units = ['B', 'KB', 'MB', 'GB', 'TB'];
    while (value >= 1000 && unit < 4) value /= 1000, ++unit;
    return (unit === 0 ? String(value) : value.toFixed(1)) + ' ' + units[unit];
  };
  const humanTime = seconds => seconds >= 1 ? seconds.toFixed(2) + ' s' : seconds >= 1e-3 ? (seconds * 1e3).toFixed(2) + ' ms' :
      seconds >= 1e-6 ? (seconds * 1e6).toFixed(1) + ' us' : (seconds * 1e9).toFixed(0) + ' ns';
  const count = value => value === null ? '?' : String(value);

  // ---- sizes
  const environment = f => {
    const env = new Map();
    for (const symbol of f.symbols || []) env.set(symbol.name, BigInt(symbol.typical));
    return env;
  };

  const showMemory = (f, id, env) => {
    const memory = f.memory;
    if (!memory) return;
    const arena = evaluate(memory.arena ?? memory.arena_bytes ?? 0, env);
    const peak = byId(id + 'peak');
    if (peak) peak.textContent = arena === null ? '?' : humanBytes(arena) + ' (' + arena + ' bytes)', peak.dataset.bytes = count(arena);
    const svg = byId(id + 'm');
    if (!svg) return;
    const places = memory.buffers.map(b => [evaluate(b.offset_expression ?? b.offset, env), evaluate(b.bytes_expression ?? b.bytes, env)]);
    const steps = 1 + Math.max(...memory.buffers.map(b => b.last_step));
    const at = Array.from({length: steps}, () => []);  // by step: what is alive
    let top = arena !== null && arena > 0n ? arena : 1n;
    places.forEach(([offset, bytes], i) => {
      if (offset === null || bytes === null) return;
      if (offset + bytes > top) top = offset + bytes;
      for (let s = memory.buffers[i].first_step; s <= memory.buffers[i].last_step; ++s) at[s].push([offset, offset + bytes]);
    });
    // Buffers that are computed in place share their bytes, which count once.
    const alive = at.map(places => {
      let bytes = 0n, reached = 0n;
      for (const [begin, end] of places.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)) {
        if (end > reached) bytes += end - (begin > reached ? begin : reached), reached = end;
      }
      return bytes;
    });
    const width = 1000, height = 360, up = at => Number(at) / Number(top) * height;
    const rects = svg.querySelectorAll('rect.m');
    places.forEach(([offset, bytes], i) => {
      const rect = rects[i], buffer = memory.buffers[i];
      const shown = offset !== null && bytes !== null;
      rect.setAttribute('y', shown ? height - up(offset + bytes) : height);
      rect.setAttribute('height', shown ? Math.max(bytes > 0n ? 1 : 0, up(bytes)) : 0);
      rect.dataset.offset = count(offset), rect.dataset.bytes = count(bytes);
      rect.firstChild.textContent = buffer.name + ' ' + buffer.dtype + ', ' + (shown ? humanBytes(bytes) + ' at ' + offset : '?') +
          ', steps ' + buffer.first_step + ' to ' + buffer.last_step + (buffer.in_place_of === undefined ? '' : ', in place of ' + buffer.in_place_of);
    });
    let line = svg.querySelector('polyline');
    if (!line) svg.append(line = drawn('polyline', {class: 'alive'}, 'bytes alive at each step'));
    line.setAttribute('points', alive.map((bytes, s) => s * width / steps + ',' + (height - up(bytes)) + ' ' +
        (s + 1) * width / steps + ',' + (height - up(bytes))).join(' '));
    const most = alive.reduce((a, b) => b > a ? b : a, 0n), told = byId(id + 'alive');
    if (told) told.textContent = humanBytes(most) + ' are alive at most at one step.', told.dataset.bytes = String(most);
  };

  const showCosts = (f, id, env) => f.kernels.forEach((kernel, k) => {
    const flops = byId(id + 'k' + k + 'f'), bytes = byId(id + 'k' + k + 'b');
    if (!flops) return;
    const [of, moved] = [evaluate(kernel.flops, env), evaluate(kernel.bytes, env)];
    flops.textContent = flops.dataset.value = count(of);
    bytes.textContent = moved === null ? '?' : humanBytes(moved), bytes.dataset.value = count(moved);
  });

  const sliders = (f, id) => {
    const place = byId(id + 'sizes'), env = environment(f);
    const show = () => (showCosts(f, id, env), showMemory(f, id, env));
    if (place && f.symbols && f.symbols.length) {
      place.textContent = '';
      for (const symbol of f.symbols) {
        const low = Math.max(symbol.least ?? 0, 0), high = symbol.most ?? Math.max(4 * symbol.typical, low + 512);
        const name = element('label', {}, symbol.name.length > 60 ? symbol.name.slice(0, 60) + '…' : symbol.name);
        const slider = element('input', {type: 'range', min: low, max: high, value: symbol.typical, 'data-symbol': symbol.name});
        const number = element('input', {type: 'number', min: low, ...(symbol.most !== undefined ? {max: high} : {}), value: symbol.typical});
        const set = value => {
          if (!Number.isSafeInteger(value) || value < low || (symbol.most !== undefined && value > high)) return;
          env.set(symbol.name, BigInt(value));
          slider.value = number.value = value;
          show();
        };
        slider.addEventListener('input', () => set(Number(slider.value)));
        number.addEventListener('input', () => set(number.value === '' ? NaN : Number(number.value)));
        name.append(slider, number);
        place.append(name);
      }
    }
    show();
  };

  // ---- roofline
  const LOG = Math.log10;
  const roofline = (f, id) => {
    const place = byId(id + 'roof'), r = f.roofline;
    if (!place || !r) return;
    const dots = r.kernels.filter(k => k.flops > 0 && k.bytes > 0 && k.time > 0);
    const compute = r.roofs.find(roof => roof.flops), levels = r.roofs.filter(roof => roof.bytes);
    if (!compute || !levels.length) return;
    const x = dots.map(k => LOG(k.flops / k.bytes)), y = dots.map(k => LOG(k.flops / k.time));
    const ridges = levels.map(level => LOG(compute.flops / level.bytes));
    const left = Math.floor(Math.min(-1, ...x, ...ridges)), right = Math.ceil(Math.max(2, ...x, ...ridges));
    const high = Math.ceil(LOG(compute.flops) + 0.3), low = Math.floor(Math.min(high - 3, ...y));
    const width = 900, height = 420, pad = 60;
    const across = v => pad + (v - left) / (right - left) * (width - 2 * pad), up = v => height - pad - (v - low) / (high - low) * (height - 2 * pad);
    const svg = drawn('svg', {width, height, class: 'roofs'});
    for (let v = left; v <= right; ++v) svg.append(drawn('line', {class: 'grid', x1: across(v), x2: across(v), y1: up(low), y2: up(high)}), label(across(v), height - pad + 18, String(10 ** v), 'middle'));
    for (let v = low; v <= high; ++v) svg.append(drawn('line', {class: 'grid', x1: across(left), x2: across(right), y1: up(v), y2: up(v)}), label(pad - 6, up(v) + 4, '1e' + v, 'end'));
    svg.append(label(width / 2, height - 12, 'operations for each byte', 'middle'), label(8, 24, r.rate));
    const within = v => Math.min(Math.max(v, low), high);
    for (const level of levels) {
      const begin = Math.max(left, low - LOG(level.bytes)), end = Math.min(right, LOG(compute.flops / level.bytes));
      svg.append(drawn('line', {class: 'roof', x1: across(begin), y1: up(within(begin + LOG(level.bytes))), x2: across(end), y2: up(within(end + LOG(level.bytes)))}, level.name));
      svg.append(label(across(begin) + 4, up(within(begin + LOG(level.bytes))) - 4, level.name));
    }
    svg.append(drawn('line', {class: 'roof', x1: across(Math.min(...ridges)), y1: up(LOG(compute.flops)), x2: across(right), y2: up(LOG(compute.flops))}, compute.name));
    svg.append(label(across(right) - 4, up(LOG(compute.flops)) - 6, compute.name, 'end'));
    const longest = Math.max(...dots.map(k => k.time));
    dots.forEach((k, i) => svg.append(drawn('circle', {class: 'dot', cx: across(x[i]), cy: up(y[i]), r: 3 + 9 * Math.sqrt(k.time / longest)},
        k.name + ': ' + k.text)));
    place.append(svg);
  };

  // ---- time line
  const COLOURS = ['#69b', '#b86', '#7a7', '#a7b', '#b77', '#6aa', '#aa6', '#88c', '#c8a', '#8a8'];
  const timeLine = () => {
    const place = byId('trace'), trace = report.trace;
    if (!place || !trace) return;
    const rows = [];  // of a thread: runs, steps, parts
    trace.threads.forEach((thread, t) => [0, 1, 2].forEach(kind => {
      const slices = trace.slices.filter(s => s[0] === t && s[1] === kind);
      if (slices.length) rows.push({name: (thread.name || 'thread ' + thread.tid) + [', runs', ', steps', ', parts'][kind], slices});
    }));
    const end = Math.max(1, ...trace.slices.map(s => s[3] + s[4]));
    let from = 0, to = end;
    const width = 1000, side = 150, line = 22;
    const svg = drawn('svg', {width: width + side, height: rows.length * line + 24, class: 'trace', tabindex: 0});
    const told = element('p', {id: 'tracetold'}, 'Click a slice to see what it is.');
    const describe = s => trace.names[s[2]].name + ': ' + humanTime(s[4] * 1e-6) + ' at ' + (s[3] / 1e3).toFixed(3) + ' ms, run ' + s[5] +
        (s[6] >= 0 ? ', step ' + s[6] : '') + (trace.names[s[2]].nodes ? '; ' + trace.names[s[2]].nodes : '');
    const show = () => {
      svg.replaceChildren();
      const across = at => side + (at - from) / (to - from) * width;
      rows.forEach((row, r) => {
        svg.append(label(4, r * line + 15, row.name.length > 24 ? row.name.slice(0, 23) + '…' : row.name));
        let reached = -1;  // the last pixel with a slice: narrower ones behind it are left out
        for (const s of row.slices) {
          const begin = Math.max(across(s[3]), side), stop = Math.min(across(s[3] + s[4]), side + width);
          if (stop < side || begin > side + width || stop < reached + 0.7) continue;
          reached = Math.max(begin + 0.7, stop);
          const rect = drawn('rect', {x: begin, y: r * line + 2, width: Math.max(stop - begin, 0.7), height: line - 4,
                                      style: 'fill:' + (s[1] === 0 ? '#bbb' : COLOURS[s[2] % COLOURS.length])}, describe(s));
          rect.addEventListener('click', () => told.textContent = describe(s));
          svg.append(rect);
        }
      });
      svg.append(label(side, rows.length * line + 18, (from / 1e3).toFixed(3) + ' ms'), label(side + width, rows.length * line + 18, (to / 1e3).toFixed(3) + ' ms', 'end'));
    };
    const view = (a, b) => {
      const span = Math.min(Math.max(b - a, 0.01), end);
      from = Math.min(Math.max(a, 0), end - span), to = from + span;
      show();
    };
    const zoom = (factor, at = (from + to) / 2) => view(at - (at - from) * factor, at + (to - at) * factor);
    svg.addEventListener('wheel', event => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, from + (event.offsetX - side) / width * (to - from));
    }, {passive: false});
    svg.addEventListener('keydown', event => {
      const step = (to - from) / 5;
      const keys = {'+': () => zoom(0.6), '-': () => zoom(1.6), ArrowLeft: () => view(from - step, to - step), ArrowRight: () => view(from + step, to + step)};
      if (keys[event.key]) keys[event.key](), event.preventDefault();
    });
    const chooser = element('select', {id: 'tracerun'});
    chooser.append(element('option', {value: ''}, 'all runs'));
    trace.slices.filter(s => s[1] === 0).forEach(s => chooser.append(element('option', {value: s[3] + ' ' + s[4]}, 'run ' + s[5] + ', ' + humanTime(s[4] * 1e-6))));
    chooser.addEventListener('change', () => {
      const [a, b] = chooser.value ? chooser.value.split(' ').map(Number) : [0, end];
      view(a, a + b);
    });
    const button = (text, act) => {
      const made = element('button', {type: 'button'}, text);
      made.addEventListener('click', act);
      return made;
    };
    const bar = element('p');
    bar.append(chooser, button('+', () => zoom(0.6)), button('−', () => zoom(1.6)), button('←', () => view(from - (to - from) / 5, to - (to - from) / 5)),
               button('→', () => view(from + (to - from) / 5, to + (to - from) / 5)), button('all', () => view(0, end)));
    const frame = element('div', {class: 'draw'});
    frame.append(svg);
    place.append(bar, frame, told);
    show();
  };

  // ---- search among nodes, and tabs
  const search = (f, id) => {
    const field = byId(id + 'search'), list = byId(id + 'found');
    if (!field) return;
    const names = f.nodes.map(n => n.node.toLowerCase());
    field.hidden = false;
    field.addEventListener('input', () => {
      const wanted = field.value.toLowerCase();
      list.replaceChildren();
      if (!wanted) return;
      let found = 0;
      names.forEach((name, i) => {
        if (!name.includes(wanted) || ++found > 50) return;
        const item = element('li'), node = f.nodes[i];
        const row = byId(id + 'n' + i);
        item.append(element('a', {href: '#' + id + 'n' + i}, node.node), ' ' + (row ? row.children[1].textContent + ' ' + row.children[2].textContent : node.fate));
        list.append(item);
      });
      if (found > 50) list.append(element('li', {}, (found - 50) + ' more'));
    });
  };
  const tabs = () => {
    const sections = [...document.querySelectorAll('section[data-tab]')], nav = byId('tabs');
    const names = ['everything', ...new Set(sections.map(s => s.dataset.tab))];
    const choose = name => {
      for (const section of sections) section.hidden = name !== 'everything' && section.dataset.tab !== name;
      for (const tab of nav.children) tab.setAttribute('aria-pressed', String(tab.textContent === name));
    };
    for (const name of names) {
      const tab = element('button', {type: 'button'}, name);
      tab.addEventListener('click', () => choose(name));
      nav.append(tab);
    }
    choose('everything');
    const reach = () => {
      const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
      if (!target) return;
      if (target.closest('section[hidden]')) choose('everything');
      for (let at = target.parentElement; at; at = at.parentElement)
        if (at.tagName === 'DETAILS') at.open = true;
      target.scrollIntoView();
    };
    addEventListener('hashchange', reach);
    reach();
  };

  // ---- boxes of the graph open to their nodes
  const boxes = (f, id) => {
    const frame = byId(id + 'graph');
    if (!frame) return;
    const kernels = new Map(), nodes = new Map();  // by step
    f.kernels.forEach((kernel, k) => kernel.steps.forEach(step => kernels.set(step, k)));
    f.nodes.forEach((node, n) => (node.kernels || []).forEach(kernel => kernel.steps.forEach(step => {
      if (!nodes.has(step)) nodes.set(step, []);
      nodes.get(step).push(n);
    })));
    const told = element('div', {id: id + 'box'}, 'A click on a kernel lists its nodes.');
    frame.after(told);
    frame.addEventListener('click', event => {
      const box = event.target.closest('g'), title = box && box.querySelector('title');
      const found = title && /^step (\d+):/.exec(title.textContent);
      if (!found) return;
      const step = Number(found[1]), k = kernels.get(step), list = element('ul');
      const name = box.querySelector('text').textContent;
      const heading = element('p', {}, 'Step ' + step + ': ');
      heading.append(k === undefined ? name : element('a', {href: '#' + id + 'k' + k}, f.kernels[k].name));
      for (const n of nodes.get(step) || []) {
        const item = element('li');
        item.append(element('a', {href: '#' + id + 'n' + n}, f.nodes[n].node));
        list.append(item);
      }
      told.replaceChildren(heading, list);
    });
  };

  report.functions.forEach((f, i) => {
    const id = 'f' + i;
    sliders(f, id), roofline(f, id), search(f, id), boxes(f, id);
  });
  timeLine();
  tabs();
  window.stridec = {evaluate: (text, sizes) => {
    const value = evaluate(text, new Map(Object.entries(sizes).map(([name, size]) => [name, BigInt(size)])));
    return value === null ? null : String(value);
  }};
})();
