'use strict';
(() => {
  const { root, fail, byId, seconds, bytes, percent, count, number, make, add, svg, paint, tile, tableOf, niceStep, tip, showTip, onTheme } = parts;
  const data = JSON.parse(document.getElementById('data').textContent);
  const line = data.timeline;

  // ---- what the data says ----------------------------------------------------------------------

  const KIND = { forward: 0, backward: 1, input: 2, weight: 3, sendActivation: 5, sendGradient: 6, gather: 10, reduce: 11, spread: 12, optimizer: 13, several: 14 };
  const STREAM = { compute: 0, exchange: 1, send: 2, data: 3 };
  const EXCHANGES = ['tensor parallel', 'expert parallel', 'context parallel', 'data parallel'];
  const numRanks = line.ranks.length;
  let intervals = 0;

  // From gaps and lengths to times, in seconds.
  const decode = (stream) => {
    const n = stream.spans.length / 3;
    const start = new Float64Array(n), end = new Float64Array(n), id = new Float64Array(n);
    let tick = 0;
    for (let i = 0; i < n; ++i) {
      start[i] = (tick += stream.spans[3 * i]) * line.tick_s;
      end[i] = (tick += stream.spans[3 * i + 1]) * line.tick_s;
      id[i] = stream.spans[3 * i + 2];
    }
    intervals += n;
    return { kind: stream.kind, name: stream.name, start, end, id, length: n };
  };
  const what = (id) => {
    if (id < 0) return { kind: -1 - id, stage: -1, microBatch: -1 };
    const rest = Math.floor(id / 16);
    return { kind: id % 16, stage: Math.floor(rest / line.micro_batches), microBatch: rest % line.micro_batches };
  };
  const ranks = line.ranks.map((rank) => {
    const streams = rank.streams.map(decode);
    const n = rank.samples.length / 4;
    const time = new Float64Array(n), gradients = new Float64Array(n), activations = new Float64Array(n), work = new Float64Array(n);
    let tick = 0;
    for (let i = 0; i < n; ++i) {
      time[i] = (tick += rank.samples[4 * i]) * line.tick_s;
      gradients[i] = rank.samples[4 * i + 1] * 2 ** 20;
      activations[i] = rank.samples[4 * i + 2] * 2 ** 20;
      work[i] = rank.samples[4 * i + 3] * 2 ** 20;
    }
    const others = streams.filter((s) => s.kind !== STREAM.compute);
    const states = (i) => rank.states + gradients[i];
    const held = (i) => rank.outside + states(i) + activations[i] + work[i];
    return { ...rank, compute: streams.find((s) => s.kind === STREAM.compute), others, time, states, held, activations, work };
  });
  let highest = 0;
  for (let r = 1; r < numRanks; ++r) if (ranks[r].device > ranks[highest].device) highest = r;
  const most = ranks[highest].device;

  // Index of the first span that ends after `t`.
  const firstAfter = (stream, t) => {
    let low = 0, high = stream.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (stream.end[middle] > t) high = middle; else low = middle + 1;
    }
    return low;
  };
  const exposed = (pass) => {
    if (pass.stage < 0 || pass.kind > KIND.input) return [0, 0, 0, 0];
    const stage = line.stages[pass.stage];
    return pass.kind === KIND.forward ? stage.slice(3, 7) : stage.slice(7, 11);
  };

  // ---- colours ---------------------------------------------------------------------------------

  let colors = {};
  const color = (name) => colors[name] || (colors[name] = getComputedStyle(root).getPropertyValue('--' + name).trim() || '#888');
  const PASSES = ['forward', 'backward', 'input', 'weight'];
  const spanColor = (span) => {
    if (span.kind <= KIND.weight) {
      const odd = Math.floor(span.stage / numRanks) % 2 === 1;
      return color(PASSES[span.kind] + (odd ? '-2' : ''));
    }
    if (span.kind === KIND.optimizer) return color('optimizer');
    if (span.kind === KIND.several) return color('several');
    return color(span.kind === KIND.sendActivation || span.kind === KIND.sendGradient ? 'send' : 'data');
  };

  // ---- header ----------------------------------------------------------------------------------

  const fillHeader = () => {
    const perSecond = line.step_s > 0 ? data.tokens_per_step / line.step_s : 0;
    tile('Step', seconds(line.step_s), count(data.tokens_per_step) + ' tokens');
    tile('Tokens per second', count(perSecond), 'on ' + count(data.devices) + (data.devices === 1 ? ' device' : ' devices'));
    tile('Tokens per second and device', count(perSecond / data.devices), count(86400 * perSecond / 1e6) + ' M tokens a day in all');
    const upper = Math.max(...ranks.map((rank) => rank.upper));
    const over = data.limit > 0 && upper > data.limit;
    const memory = tile('Memory of the fullest device', bytes(most), undefined, over ? ' bad' : '');
    if (data.limit > 0) {
      const fill = make('i');
      fill.style.width = Math.min(100, 100 * most / data.limit) + '%';
      memory.append(add(make('div', 'gauge'), fill));
      const text = (most > data.limit ? 'does not fit: ' : over ? 'may not fit: ' : '') + percent(most / data.limit) + ' of ' + bytes(data.limit);
      memory.append(make('div', 'more', text + ' on rank ' + highest + ', at most ' + bytes(upper)));
    }
    for (const [label, value] of data.facts) add(byId('facts'), add(make('div'), make('dt', '', label), make('dd', '', value)));
  };

  // ---- the time line ---------------------------------------------------------------------------

  const canvas = byId('timeline'), memory = byId('memory');
  const view = { start: 0, end: line.end_s };
  let selected = highest, hover = null;
  const gutter = () => (canvas.clientWidth < 560 ? 54 : 74);
  const rowHeight = numRanks > 24 ? 20 : 32;
  const lane = numRanks > 24 ? 12 : 21;
  const axis = 24;

  const prepare = (target, height) => {
    const ratio = devicePixelRatio || 1, width = target.clientWidth;
    target.style.height = height + 'px';
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    const context = target.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    return { context, width, height };
  };
  const scaleOf = (width) => (width - gutter() - 8) / (view.end - view.start);
  const tickLabel = (t, step) => {
    const unit = view.end >= 1 ? [1, 's'] : view.end >= 1e-3 ? [1e3, 'ms'] : [1e6, '\u00b5s'];
    const places = Math.max(0, -Math.floor(Math.log10(step * unit[0]) + 1e-9));
    return (t * unit[0]).toFixed(Math.min(places, 9)) + ' ' + unit[1];
  };
  const drawAxis = (context, width, y, height, scale) => {
    const step = niceStep(view.end - view.start, Math.max(2, (width - gutter()) / 110));
    context.textAlign = 'center';
    for (let k = Math.ceil(view.start / step); k * step <= view.end; ++k) {
      const x = gutter() + (k * step - view.start) * scale;
      context.fillStyle = color('line');
      context.fillRect(x, 0, 1, height);
      context.fillStyle = color('soft');
      if (x < width - 24) context.fillText(tickLabel(k * step, step), x, y + axis / 2);
    }
  };

  const drawStream = (context, stream, y, height, scale, right, draw) => {
    for (let i = firstAfter(stream, view.start); i < stream.length && stream.start[i] < view.end; ++i) {
      const x0 = Math.max(gutter(), gutter() + (stream.start[i] - view.start) * scale);
      const x1 = Math.min(right, gutter() + (stream.end[i] - view.start) * scale);
      draw(context, what(stream.id[i]), x0, Math.max(x1 - x0, 0.6), y, height, i);
    }
  };

  const drawTimeline = () => {
    const { context, width, height } = prepare(canvas, numRanks * rowHeight + axis);
    const scale = scaleOf(width), right = width - 8;
    drawAxis(context, width, height - axis, height - axis, scale);
    for (let r = 0; r < numRanks; ++r) {
      const y = r * rowHeight + 3;
      context.textAlign = 'left';
      context.fillStyle = r === selected ? color('accent') : color('soft');
      context.fillText((gutter() < 60 ? '' : 'rank ') + r, 2, y + lane / 2);
      const from = gutter() + Math.max(0, -view.start * scale);
      const to = Math.min(right, gutter() + (line.end_s - view.start) * scale);
      context.fillStyle = color('idle');
      context.fillRect(from, y, to - from, lane);
      drawStream(context, ranks[r].compute, y, lane, scale, right, (c, span, x, w, top, h) => {
        c.fillStyle = spanColor(span);
        c.fillRect(x, top, w > 3 ? w - 0.7 : w, h);
        const waits = exposed(span).reduce((a, b) => a + b, 0) * scale;
        if (waits > 0.5) {
          c.fillStyle = color('exchange');
          const strip = Math.min(waits, w);
          c.fillRect(x + w - strip, top + h - 4, w > 3 ? strip - 0.7 : strip, 4);
        }
        const text = span.kind === KIND.optimizer ? 'optimizer' : span.microBatch >= 0 ? String(span.microBatch) : '';
        if (text && lane > 14 && w > 7 * text.length + 3) {
          c.fillStyle = color('on-color');
          c.textAlign = 'center';
          c.fillText(text, x + w / 2, top + h / 2 - (waits > 0.5 ? 1.5 : 0) + 0.5);
        }
      });
      const thin = rowHeight - lane - 7;
      for (const stream of ranks[r].others) {
        drawStream(context, stream, y + lane + 1, Math.max(2, thin), scale, right, (c, span, x, w, top, h) => {
          c.fillStyle = spanColor(span);
          c.fillRect(x, top, w, h);
        });
      }
    }
    if (hover && hover.time >= view.start && hover.time <= view.end) {
      context.fillStyle = color('text');
      context.fillRect(gutter() + (hover.time - view.start) * scale, 0, 1, height - axis);
    }
  };

  // ---- memory over time ------------------------------------------------------------------------

  const memoryAt = (rank, t) => {
    let low = 0, high = rank.time.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rank.time[middle] > t) high = middle; else low = middle + 1;
    }
    return Math.max(0, low - 1);
  };
  // A line of steps from sample to sample within the view; several samples on one pixel count as their most.
  const stepPath = (context, rank, value, x, y, close) => {
    const first = memoryAt(rank, view.start);
    context.beginPath();
    let lastX = x(Math.max(view.start, rank.time[first])), lastY = y(value(first));
    const beginX = lastX;
    context.moveTo(lastX, lastY);
    for (let i = first + 1; i < rank.time.length && rank.time[i] <= view.end; ++i) {
      const at = x(rank.time[i]), to = y(value(i));
      context.lineTo(at, lastY);
      context.lineTo(at, to);
      lastX = at;
      lastY = to;
    }
    lastX = x(Math.min(view.end, line.end_s));
    context.lineTo(lastX, lastY);
    if (close !== undefined) {
      context.lineTo(lastX, close);
      context.lineTo(beginX, close);
      context.closePath();
    }
  };
  const drawMemory = () => {
    const { context, width, height } = prepare(memory, 230);
    const scale = scaleOf(width), bottom = height - axis, right = width - 8;
    const top = Math.max(most, most > 3 * data.limit ? 0 : data.limit) * 1.06 || 1;
    const x = (t) => gutter() + (t - view.start) * scale;
    const y = (b) => bottom - (b / top) * (bottom - 6);
    drawAxis(context, width, bottom, bottom, scale);
    const unit = top >= 2 ** 30 ? 2 ** 30 : 2 ** 20;
    const step = niceStep(top / unit, 5);
    context.textAlign = 'right';
    for (let k = 0; k * step * unit <= top; ++k) {
      context.fillStyle = color('line');
      context.fillRect(gutter(), y(k * step * unit), right - gutter(), 1);
      context.fillStyle = color('soft');
      const label = k === 0 ? '0' : +(k * step).toPrecision(6) + (unit === 2 ** 30 ? ' GiB' : ' MiB');
      context.fillText(label, gutter() - 6, Math.min(bottom - 6, y(k * step * unit)));
    }
    context.save();
    context.beginPath();
    context.rect(gutter(), 0, right - gutter(), bottom);
    context.clip();
    const rank = ranks[selected];
    const layers = [
      ['work', rank.held],
      ['activations', (i) => rank.held(i) - rank.work[i]],
      ['states', (i) => rank.outside + rank.states(i)],
      ['outside', () => rank.outside],
    ];
    for (const [name, value] of layers) {
      context.fillStyle = color(name);
      stepPath(context, rank, value, x, y, bottom);
      context.fill();
    }
    context.lineWidth = 1;
    context.strokeStyle = color('soft');
    context.globalAlpha = 0.45;
    ranks.forEach((other, r) => {
      if (r === selected || numRanks > 32) return;
      stepPath(context, other, other.held, x, y);
      context.stroke();
    });
    context.globalAlpha = 1;
    if (data.limit > 0) {
      context.strokeStyle = color('limit');
      context.lineWidth = 1.5;
      context.setLineDash([6, 4]);
      context.beginPath();
      context.moveTo(gutter(), y(data.limit));
      context.lineTo(right, y(data.limit));
      context.stroke();
    }
    context.restore();
    if (hover && hover.time >= view.start && hover.time <= view.end) {
      context.fillStyle = color('text');
      context.fillRect(x(hover.time), 0, 1, bottom);
    }
  };

  // ---- looking closer --------------------------------------------------------------------------

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawTimeline();
      drawMemory();
    });
  };
  const look = (start, end) => {
    const least = Math.max(line.end_s * 1e-5, 1e-7);
    const length = Math.min(line.end_s, Math.max(least, end - start));
    view.start = Math.min(Math.max(0, start), line.end_s - length);
    view.end = view.start + length;
    redraw();
  };
  const zoom = (factor, around) => {
    const center = around === undefined ? (view.start + view.end) / 2 : around;
    look(center - (center - view.start) * factor, center + (view.end - center) * factor);
  };
  const timeAt = (target, event) => {
    const box = target.getBoundingClientRect();
    return view.start + (event.clientX - box.left - gutter()) / scaleOf(target.clientWidth);
  };
  const select = (r) => {
    selected = r;
    byId('rank').value = String(r);
    document.querySelectorAll('.stack').forEach((row) => row.classList.toggle('selected', row.dataset.rank === String(r)));
    redraw();
  };
  const hideTip = () => {
    tip.hidden = true;
    hover = null;
    redraw();
  };

  const describe = (rank, stream, i) => {
    const span = what(stream.id[i]);
    const length = stream.end[i] - stream.start[i];
    const lines = [];
    let title = line.kinds[span.kind];
    if (span.microBatch >= 0) title += ' of micro-batch ' + span.microBatch + ', stage ' + span.stage;
    if (stream.kind === STREAM.send) title += ', ' + stream.name;
    lines.push(seconds(length) + ', from ' + seconds(stream.start[i]));
    const waits = stream.kind === STREAM.compute ? exposed(span) : [];
    waits.forEach((s, k) => { if (s > 0) lines.push('of it ' + EXCHANGES[k] + ' ' + seconds(s) + ' (between its layers)'); });
    const stage = line.stages[span.stage];
    if (stage && stage[2] > 0 && (span.kind === KIND.backward || span.kind === KIND.input)) {
      lines.push('of it recompute ' + seconds(stage[2]));
    }
    return [title[0].toUpperCase() + title.slice(1), lines];
  };
  const overTimeline = (event) => {
    const box = canvas.getBoundingClientRect();
    const y = event.clientY - box.top, r = Math.floor(y / rowHeight), t = timeAt(canvas, event);
    if (r < 0 || r >= numRanks || t < view.start || t > Math.min(view.end, line.end_s)) return hideTip();
    hover = { time: t };
    const rank = ranks[r];
    const slack = 2 / scaleOf(canvas.clientWidth);
    let found = null;
    if (y - r * rowHeight > lane + 3) {
      for (const stream of rank.others) {
        const i = firstAfter(stream, t - slack);
        if (i < stream.length && stream.start[i] <= t + slack) found = describe(rank, stream, i);
      }
    }
    if (!found) {
      const i = firstAfter(rank.compute, t);
      if (i < rank.compute.length && rank.compute.start[i] <= t) {
        found = describe(rank, rank.compute, i);
      } else {
        const from = i > 0 ? rank.compute.end[i - 1] : 0;
        const to = i < rank.compute.length ? rank.compute.start[i] : line.end_s;
        const next = i < rank.compute.length ? what(rank.compute.id[i]) : null;
        const until = !next ? '' : next.microBatch >= 0
          ? 'until what ' + line.kinds[next.kind] + ' of micro-batch ' + next.microBatch + ', stage ' + next.stage + ' needs is there'
          : 'until all ranks have their gradients';
        found = ['Idle', [seconds(to - from) + ', from ' + seconds(from), until].filter((text) => text)];
      }
    }
    const at = memoryAt(rank, t);
    found[1].push('rank ' + r + ' holds ' + bytes(rank.held(at)));
    showTip(event, found[0], found[1]);
    redraw();
  };
  const overMemory = (event) => {
    const t = timeAt(memory, event);
    if (t < view.start || t > Math.min(view.end, line.end_s)) return hideTip();
    hover = { time: t };
    const rank = ranks[selected], i = memoryAt(rank, t);
    showTip(event, 'Rank ' + selected + ' at ' + seconds(t) + ': ' + bytes(rank.held(i)), [
      'pass under way ' + bytes(rank.work[i]),
      'activations ' + bytes(rank.activations[i]),
      'parameters, gradients, optimizer ' + bytes(rank.states(i)),
      'no tensors, and allocator ' + bytes(rank.outside),
    ]);
    redraw();
  };

  const listen = () => {
    for (const target of [canvas, memory]) {
      let drag = null;
      target.addEventListener('pointerdown', (event) => {
        if (event.button !== 0) return;
        drag = { x: event.clientX, start: view.start, end: view.end, moved: false };
        target.setPointerCapture(event.pointerId);
      });
      target.addEventListener('pointermove', (event) => {
        if (!drag) return target === canvas ? overTimeline(event) : overMemory(event);
        if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
        const by = (drag.x - event.clientX) / scaleOf(target.clientWidth);
        canvas.classList.toggle('drag', drag.moved);
        tip.hidden = true;
        if (drag.moved) look(drag.start + by, drag.end + by);
      });
      target.addEventListener('pointerup', (event) => {
        if (drag && !drag.moved && target === canvas) {
          const r = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / rowHeight);
          if (r >= 0 && r < numRanks) select(r);
        }
        drag = null;
        canvas.classList.remove('drag');
      });
      target.addEventListener('pointercancel', () => { drag = null; });
      target.addEventListener('pointerleave', () => { if (!drag) hideTip(); });
      target.addEventListener('dblclick', () => look(0, line.end_s));
      // Without the key the wheel moves the page, as everywhere.
      target.addEventListener('wheel', (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          zoom(Math.exp(event.deltaY * 0.002), timeAt(target, event));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          const by = (event.deltaX || event.deltaY) / scaleOf(target.clientWidth);
          look(view.start + by, view.end + by);
        }
      }, { passive: false });
    }
    canvas.addEventListener('keydown', (event) => {
      const part = (view.end - view.start) / 8;
      const keys = {
        ArrowLeft: () => look(view.start - part, view.end - part),
        ArrowRight: () => look(view.start + part, view.end + part),
        ArrowUp: () => select(Math.max(0, selected - 1)),
        ArrowDown: () => select(Math.min(numRanks - 1, selected + 1)),
        '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), 0: () => look(0, line.end_s),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    byId('zoom-in').addEventListener('click', () => zoom(0.5));
    byId('zoom-out').addEventListener('click', () => zoom(2));
    byId('zoom-all').addEventListener('click', () => look(0, line.end_s));
    byId('rank').addEventListener('change', (event) => select(Number(event.target.value)));
    onTheme(repaint);
    new ResizeObserver(redraw).observe(canvas);
  };
  const repaint = () => {
    colors = {};
    redraw();
  };

  // ---- the rest of the page --------------------------------------------------------------------

  const legendItem = (text, name, className) => {
    const mark = make('i', className);
    if (className === 'line') mark.style.borderColor = 'var(--' + name + ')'; else paint(mark, name);
    return add(make('span'), mark, text);
  };

  const fillStep = () => {
    const used = new Set();
    for (const rank of ranks) {
      for (const stream of [rank.compute, ...rank.others]) for (const id of stream.id) used.add(id < 0 ? -1 - id : id % 16);
    }
    const legend = byId('legend');
    PASSES.forEach((name, kind) => { if (used.has(kind)) legend.append(legendItem(line.kinds[kind], name)); });
    if (used.has(KIND.several)) legend.append(legendItem(line.kinds[KIND.several], 'several'));
    legend.append(legendItem('idle', 'idle'), legendItem('optimizer', 'optimizer'));
    if (line.stages.some((s) => s.slice(3).some((t) => t > 0))) legend.append(legendItem('waits for tensor, expert, context or data parallel ranks', 'exchange', 'thin'));
    if (used.has(KIND.sendActivation) || used.has(KIND.sendGradient)) legend.append(legendItem('sends between stages', 'send', 'thin'));
    if (used.has(KIND.gather) || used.has(KIND.reduce) || used.has(KIND.spread)) legend.append(legendItem('data parallel', 'data', 'thin'));
    let hint = 'Numbers are micro-batches' + (line.num_stages > numRanks ? '; the lighter shade is every second stage of a rank' : '') +
      '. Point at anything to see what it is; drag to move, Ctrl + wheel to zoom, click a rank to see its memory.';
    if (line.left_out > 0) {
      hint += ' ' + count(line.left_out) + ' of ' + count(line.micro_batches) + ' micro-batches are not drawn: they repeat the middle, ' +
        seconds(line.left_out_s) + ' of the ' + seconds(line.step_s) + '.';
    }
    byId('step-hint').textContent = hint;
    canvas.setAttribute('aria-label', 'Time line of a step of ' + seconds(line.step_s) + ' on ' + numRanks + ' pipeline ranks');
    memory.setAttribute('aria-label', 'Memory of a device over the step, at most ' + bytes(most));
    for (let r = 0; r < numRanks; ++r) {
      const option = make('option', '', String(r));
      option.value = String(r);
      byId('rank').append(option);
    }
    const names = byId('memory-legend');
    names.append(legendItem('pass under way', 'work'), legendItem('activations', 'activations'),
      legendItem('parameters, gradients, optimizer', 'states'), legendItem('no tensors, and allocator', 'outside'));
    if (data.limit > 0) names.append(legendItem('limit of the device', 'limit', 'line'));
    if (numRanks > 1 && numRanks <= 32) names.append(legendItem('other ranks', 'soft', 'thin'));
  };

  const CATEGORIES = [['parameters', 'parameters', 0], ['gradients', 'gradients', 1], ['optimizer', 'optimizer-state', 2],
    ['activations', 'activations', 3], ['work', 'work', 4], ['logits', 'logits', 5], ['no tensors', 'outside', 6]];
  const fillStacks = () => {
    const top = Math.max(most, most > 3 * data.limit ? 0 : data.limit);
    byId('stack-hint').textContent = 'Of each pipeline rank at the instant of its own peak' + (data.limit > 0 ? '; the dashed line is what the device has.' : '.');
    const legend = make('div', 'legend');
    const shown = [...CATEGORIES.map(([text, name, k]) => [text, name, (rank) => rank.parts[k]]), ['lost by the allocator', 'reserve', (rank) => rank.reserve]]
      .filter(([, , value]) => ranks.some((rank) => value(rank) > 0));
    for (const [text, name] of shown) legend.append(legendItem(text, name));
    byId('stacks').append(legend);
    const rows = make('div', 'scroll-y');
    ranks.forEach((rank, r) => {
      const fill = make('div', 'fill');
      fill.style.width = Math.min(100, 100 * rank.device / top) + '%';
      for (const [, name, value] of shown) {
        const part = paint(make('i'), name);
        part.style.width = 100 * value(rank) / rank.device + '%';
        fill.append(part);
      }
      const track = add(make('div', 'track'), fill);
      if (data.limit > 0 && data.limit <= top) {
        const mark = make('div', 'mark');
        mark.style.left = 100 * data.limit / top + '%';
        track.append(mark);
      }
      const row = add(make('div', 'stack'), make('span', 'who', 'rank ' + r), track, make('span', 'num', bytes(rank.device)));
      row.dataset.rank = String(r);
      row.addEventListener('pointermove', (event) => showTip(event, 'Rank ' + r + ': ' + bytes(rank.device),
        shown.filter(([, , value]) => value(rank) > 0).map(([text, , value]) => text + ' ' + bytes(value(rank)) + ', ' + percent(value(rank) / rank.device))));
      row.addEventListener('pointerleave', hideTip);
      row.addEventListener('click', () => select(r));
      rows.append(row);
    });
    byId('stacks').append(rows);
  };

  const TIME_COLORS = ['forward', 'weight', 'exchange', 'input', 'backward', 'outside', 'data', 'optimizer', 'send'];
  const fillTimes = () => {
    const parts = Object.entries(line.time).map(([name, s], k) => [name, s, TIME_COLORS[k]]).filter(([, s]) => s > 0);
    const whole = parts.reduce((sum, [, s]) => sum + s, 0) || 1;
    byId('time-hint').textContent = 'Of the rank with most to do; what is hidden behind computing does not count.';
    const bar = make('div', 'whole');
    const table = make('table');
    for (const [name, s, paintName] of parts) {
      const part = paint(make('i'), paintName);
      part.style.width = 100 * s / whole + '%';
      part.addEventListener('pointermove', (event) => showTip(event, name, [seconds(s) + ', ' + percent(s / whole)]));
      part.addEventListener('pointerleave', hideTip);
      bar.append(part);
      const cell = add(make('td'), paint(make('i', 'swatch'), paintName), name);
      table.append(add(make('tr'), cell, make('td', 'num', seconds(s)), make('td', 'num', percent(s / whole))));
    }
    byId('times').append(bar, table);
  };

  const fillWhatIf = () => {
    const section = byId('what-if');
    section.hidden = data.what_if.length === 0;
    const table = tableOf([['change'], [''], ['memory', 'num'], ['step', 'num'], ['against this plan', 'num'], ['why']]);
    for (const row of data.what_if) {
      const change = row.step_s > 0 && line.step_s > 0 ? row.step_s / line.step_s - 1 : null;
      const text = change === null ? '' : (change > 0 ? '+' : change < 0 ? '\u2212' : '\u00b1') + percent(Math.abs(change));
      table.append(add(make('tr'), make('td', 'name', row.name), add(make('td'), make('span', 'tag ' + (row.fits ? 'yes' : 'no'), row.fits ? 'fits' : 'does not fit')),
        make('td', 'num', row.bytes > 0 ? bytes(row.bytes) : ''), make('td', 'num', row.step_s > 0 ? seconds(row.step_s) : ''),
        make('td', 'num ' + (change < -5e-4 ? 'less' : change > 5e-4 ? 'greater' : ''), text), make('td', 'wide', row.reason)));
    }
    section.querySelector('.scroll-x').append(table);
  };

  const fillPareto = () => {
    const section = byId('pareto'), points = data.pareto.points;
    section.hidden = points.length === 0;
    if (points.length === 0) return;
    const width = 900, height = 360, left = 84, bottom = 46, top = 14, right = 16;
    const range = (key) => {
      const values = points.map((point) => point[key]);
      let low = Math.min(...values), high = Math.max(...values);
      if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
      const margin = (high - low) * 0.06;
      return [low - margin, high + margin];
    };
    const [x0, x1] = range('x'), [y0, y1] = range('y');
    const x = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
    const y = (v) => height - bottom - (v - y0) / (y1 - y0) * (height - bottom - top);
    const chart = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': data.pareto.y + ' against ' + data.pareto.x });
    for (const [low, high, place, horizontal] of [[x0, x1, x, true], [y0, y1, y, false]]) {
      const step = niceStep(high - low, horizontal ? 7 : 5);
      for (let k = Math.ceil(low / step); k * step <= high; ++k) {
        const at = place(k * step), value = number(+(k * step).toPrecision(8));
        chart.append(horizontal
          ? svg('line', { x1: at, x2: at, y1: top, y2: height - bottom, style: 'stroke: var(--line)' })
          : svg('line', { x1: left, x2: width - right, y1: at, y2: at, style: 'stroke: var(--line)' }));
        chart.append(horizontal
          ? svg('text', { x: at, y: height - bottom + 18, 'text-anchor': 'middle' }, value)
          : svg('text', { x: left - 8, y: at + 4, 'text-anchor': 'end' }, value));
      }
    }
    chart.append(svg('text', { x: (left + width - right) / 2, y: height - 6, 'text-anchor': 'middle' }, data.pareto.x));
    chart.append(svg('text', { x: 14, y: (height - bottom) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(height - bottom) / 2})` }, data.pareto.y));
    const front = points.filter((point) => point.front).sort((a, b) => a.x - b.x || a.y - b.y);
    if (front.length > 1) {
      chart.append(svg('polyline', { points: front.map((point) => x(point.x) + ',' + y(point.y)).join(' '), style: 'fill: none; stroke: var(--accent); stroke-width: 1.5; opacity: .6' }));
    }
    for (const point of [...points].sort((a, b) => a.chosen - b.chosen || a.front - b.front)) {
      const style = point.chosen ? 'fill: var(--optimizer); stroke: var(--card); stroke-width: 2'
        : point.front ? 'fill: var(--accent); stroke: var(--card); stroke-width: 1.5' : 'fill: var(--soft); opacity: .45';
      const mark = svg('circle', { cx: x(point.x), cy: y(point.y), r: point.chosen ? 7 : point.front ? 5.5 : 4, style });
      mark.addEventListener('pointermove', (event) => showTip(event, point.name, [data.pareto.x + ': ' + number(point.x), data.pareto.y + ': ' + number(point.y),
        ...(point.chosen ? ['this plan'] : point.front ? ['nothing is better in both'] : [])]));
      mark.addEventListener('pointerleave', hideTip);
      chart.append(mark);
    }
    const legend = make('div', 'legend');
    if (points.some((point) => point.chosen)) legend.append(legendItem('this plan', 'optimizer'));
    legend.append(legendItem('nothing is better in both', 'accent'), legendItem('others', 'soft'));
    section.querySelector('div').append(legend, chart);
  };

  const fillNotes = () => {
    byId('notes').hidden = data.notes.length === 0;
    for (const note of data.notes) byId('notes').querySelector('ul').append(make('li', '', note));
    byId('constants').hidden = data.constants.length === 0;
    const table = tableOf([['constant'], ['value', 'num'], [''], ['source']]);
    for (const row of data.constants) {
      table.append(add(make('tr'), make('td', 'name', row.name), make('td', 'num', row.value),
        add(make('td'), make('span', 'tag' + (row.origin === 'measured' ? ' yes' : ''), row.origin)), make('td', 'wide', row.source)));
    }
    byId('constants').querySelector('.scroll-x').append(table);
  };

  try {
    fillHeader();
    fillStep();
    fillStacks();
    fillTimes();
    fillWhatIf();
    fillPareto();
    fillNotes();
    select(highest);
    listen();
    drawTimeline();
    drawMemory();
    if (!root.dataset.check) root.dataset.check = 'ok ' + intervals + ' intervals';
  } catch (error) {
    fail(error.message);
    throw error;
  }
})();
