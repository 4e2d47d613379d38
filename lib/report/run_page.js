(() => {
  const { root, fail, byId, seconds, bytes, count, number, make, add, svg, paint, tile, tableOf, niceStep, tip, showTip, onTheme } = parts;
  const data = JSON.parse(byId('data').textContent);
  const NUM_COLORS = 8;

  // ---- what the data says ----------------------------------------------------------------------

  let points = 0;
  const decode = (curve) => {
    let step = 0;
    points += curve.steps.length;
    return { steps: curve.steps.map((by) => (step += by)), values: curve.values };
  };
  const CURVES = ['loss', 'smooth', 'lr', 'grad_norm', 'tokens_per_second', 'seconds'];
  const runs = data.runs.map((run, r) => {
    const curves = {};
    for (const name of CURVES) curves[name] = decode(run[name]);
    return {
      ...run, ...curves, index: r, shown: true,
      color: 'run-' + (r % NUM_COLORS),
      evaluation: run.evaluation.map((set) => ({ name: set.name, ...decode(set) })),
    };
  });
  const sets = [...new Set(runs.flatMap((run) => run.evaluation.map((set) => set.name)))];
  const trained = runs.filter((run) => run.step > 0 || run.evaluation.length > 0);
  const dot = (run) => paint(make('i', 'dot'), run.color);
  // Beyond the last color, lines of the same color differ by their dashes.
  const dashOf = (run) => ['', '7 3', '2 3', '9 3 2 3'][Math.floor(run.index / NUM_COLORS) % 4];
  const setDash = (k) => ['', '6 4', '2 3', '9 3 2 3'][k % 4];

  const lossText = (x) => (x === null ? '\u2013' : Math.abs(x) < 1e4 ? x.toFixed(4) : x.toExponential(3));
  const whole = (x) => (x === null ? '\u2013' : count(x));
  const short = (x) => {
    for (const [unit, name] of [[1e12, ' T'], [1e9, ' B'], [1e6, ' M'], [1e3, ' k']]) {
      if (Math.abs(x) >= unit) return +(x / unit).toPrecision(4) + name;
    }
    return String(+x.toPrecision(4));
  };
  const duration = (s) => {
    if (s >= 86400) return +(s / 86400).toPrecision(3) + ' d';
    if (s >= 3600) return +(s / 3600).toPrecision(3) + ' h';
    return s >= 120 ? +(s / 60).toPrecision(3) + ' min' : +s.toPrecision(3) + ' s';
  };

  // ---- the x axis ------------------------------------------------------------------------------

  // zoom: [low, high] of the axis, or null for all of it.
  const view = { axis: 'steps', log: false, marks: true, zoom: null };
  const AXES = {
    steps: { name: 'step', text: (x) => count(x), tick: short },
    tokens: { name: 'tokens', text: (x) => short(x) + ' tokens', tick: short },
    seconds: { name: 'training time', text: duration, tick: duration },
  };
  // Index of the last element that is at most `x`; -1 if there is none.
  const lastAtMost = (list, x) => {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] > x) high = middle; else low = middle + 1;
    }
    return low - 1;
  };
  // Between two known steps the axis is straight.
  const xOf = (run, step) => {
    if (view.axis === 'steps') return step;
    const places = run.places, at = places[view.axis];
    if (at.length === 0) return 0;
    const i = lastAtMost(places.steps, step);
    if (i < 0) return places.steps[0] > 0 ? at[0] * Math.max(0, step) / places.steps[0] : at[0];
    if (i + 1 >= at.length) return at[i];
    return at[i] + (at[i + 1] - at[i]) * (step - places.steps[i]) / (places.steps[i + 1] - places.steps[i]);
  };
  const allX = () => {
    const ends = runs.filter((run) => run.shown).map((run) => xOf(run, Math.max(run.step, 1)));
    return [0, Math.max(1e-9, ...ends)];
  };

  // ---- charts ----------------------------------------------------------------------------------

  // robust: a few values that are so many times the others do not set the scale. zero: the scale begins at 0.
  const CHARTS = [
    { id: 'loss', title: 'Training loss', wide: true, log: true, format: lossText,
      series: (run) => [{ curve: run.loss, raw: true }, { curve: run.smooth }] },
    { id: 'evaluation', title: 'Evaluation loss', log: true, format: lossText, dots: true, sets: true,
      series: (run) => run.evaluation.map((set) => ({ curve: set, set: sets.indexOf(set.name) })) },
    { id: 'lr', title: 'Learning rate', format: (x) => (x === null ? '\u2013' : x === 0 ? '0' : x.toExponential(3)), zero: true, series: (run) => [{ curve: run.lr }] },
    { id: 'grad_norm', title: 'Gradient norm', log: true, robust: 10, format: (x) => (x === null ? '\u2013' : number(x)), series: (run) => [{ curve: run.grad_norm }] },
    { id: 'tokens', title: 'Tokens per second', format: whole, zero: true, robust: 3, series: (run) => [{ curve: run.tokens_per_second }] },
    { id: 'seconds', title: 'Step time', format: (x) => (x === null ? '\u2013' : seconds(x)), zero: true, robust: 3, series: (run) => [{ curve: run.seconds }],
      tick: (x) => (x === 0 ? '0' : x >= 1 ? short(x) + ' s' : x >= 1e-3 ? short(x * 1e3) + ' ms' : short(x * 1e6) + ' \u00b5s') },
  ];
  const MARGIN = { left: 62, right: 12, top: 10, bottom: 34 };

  const visibleValues = (chart, x0, x1) => {
    const values = [];
    for (const run of runs) {
      if (!run.shown) continue;
      for (const { curve } of chart.series(run)) {
        curve.values.forEach((value, i) => {
          if (value === null || (view.log && chart.log && value <= 0)) return;
          const x = xOf(run, curve.steps[i]);
          if (x >= x0 && x <= x1) values.push(value);
        });
      }
    }
    return values.sort((a, b) => a - b);
  };
  // [low, high, the highest value if it is beyond]
  const scaleOf = (chart, x0, x1) => {
    const values = visibleValues(chart, x0, x1);
    if (values.length === 0) return [view.log && chart.log ? 0.1 : 0, 1, null];
    let low = values[0], high = values[values.length - 1], beyond = null;
    const isLog = view.log && chart.log;
    if (chart.robust && !isLog && values.length > 20) {
      const most = values[Math.floor(values.length * 0.97)];
      if (high > chart.robust * most) { beyond = high; high = 1.5 * most; }
    }
    if (isLog) {
      const margin = (high / low) ** 0.05 || 1;
      return low === high ? [low / 1.5, high * 1.5, null] : [low / margin, high * margin, null];
    }
    if (chart.zero) low = Math.min(0, low);
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [chart.zero && low === 0 ? 0 : low - margin, high + margin, beyond];
  };
  const logTicks = (low, high) => {
    const ticks = [], decades = Math.log10(high / low);
    if (decades < 0.6) return null;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
      for (const factor of decades > 4 ? [1] : [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) ticks.push(value);
      }
    }
    return ticks;
  };
  const evenTicks = (low, high, most) => {
    const ticks = [], step = niceStep(high - low, most);
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-12); ++k) ticks.push(+(k * step).toPrecision(10));
    return ticks;
  };

  const pathOf = (run, curve, x, y, isLog) => {
    let path = '', isOpen = false, alone = [];
    curve.values.forEach((value, i) => {
      if (value === null || (isLog && value <= 0)) { isOpen = false; return; }
      const at = x(xOf(run, curve.steps[i])).toFixed(1) + ' ' + y(value).toFixed(1);
      const isLast = i + 1 === curve.values.length || curve.values[i + 1] === null;
      if (!isOpen && isLast) alone.push(at);
      path += (isOpen ? 'L' : 'M') + at;
      isOpen = true;
    });
    return { path, alone };
  };

  // A value between gaps has no line, so it gets a dot.
  const markOf = (at, k, color, radius) => {
    const [x, y] = at.split(' ').map(Number), style = `fill: var(--${color}); stroke: var(--card); stroke-width: 1`;
    if (k % 3 === 1) return svg('rect', { x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius, style });
    if (k % 3 === 2) return svg('path', { d: `M${x} ${y - radius - 1}L${x + radius + 1} ${y + radius}L${x - radius - 1} ${y + radius}Z`, style });
    return svg('circle', { cx: x, cy: y, r: radius, style });
  };

  const drawMarks = (chart, layer, x, top, bottom, inside) => {
    const EVENT_COLORS = { failure: 'bad', restart: 'soft', change: 'accent' };
    for (const run of runs) {
      if (!run.shown) continue;
      if (view.marks) {
        for (const event of run.events) {
          if (event.step < 0 || !event.kind) continue;
          const at = xOf(run, event.step);
          if (!inside(at)) continue;
          if (event.kind === 'checkpoint') {
            if (chart.wide) layer.append(svg('line', { x1: x(at), x2: x(at), y1: bottom, y2: bottom + 5, style: `stroke: var(--${run.color}); stroke-width: 2` }));
            continue;
          }
          const line = svg('line', { x1: x(at), x2: x(at), y1: top, y2: bottom, 'stroke-dasharray': event.kind === 'failure' ? '' : '4 4',
            style: `stroke: var(--${runs.length > 1 ? run.color : EVENT_COLORS[event.kind]}); stroke-width: 1; opacity: ${chart.wide ? 0.8 : 0.4}` });
          layer.append(line);
          if (chart.wide) {
            const flag = svg('path', { d: `M${x(at) - 5} ${top - 8}h10l-5 7z`, style: `fill: var(--${EVENT_COLORS[event.kind]})` });
            flag.addEventListener('pointermove', (e) => { e.stopPropagation(); showTip(e, 'Step ' + count(event.step), [run.name, event.text, event.time + ' UTC']); });
            flag.addEventListener('pointerleave', () => { tip.hidden = true; });
            layer.append(flag);
          }
        }
      }
      if (chart.id !== 'loss' && chart.id !== 'grad_norm') continue;
      for (const step of run.skipped) {
        const at = xOf(run, step);
        if (inside(at)) layer.append(svg('path', { class: 'skipped', d: `M${x(at) - 3.5} ${top + 2}l7 7m0 -7l-7 7`, style: 'stroke: var(--bad); stroke-width: 1.8; fill: none' }));
      }
    }
  };

  // What the lines and marks of the largest chart mean, of those that it has.
  const lossNote = () => {
    const kinds = new Set(runs.filter((run) => run.shown).flatMap((run) => run.events.filter((event) => event.step >= 0).map((event) => event.kind)));
    const texts = ['pale: each step, bold: smoothed'];
    if (view.marks && kinds.has('checkpoint')) texts.push('ticks: checkpoints');
    const flags = [['failure', 'failures'], ['restart', 'restarts'], ['change', 'changes']].filter(([kind]) => kinds.has(kind)).map(([, text]) => text);
    if (view.marks && flags.length > 0) texts.push('flags: ' + flags.join(', '));
    if (runs.some((run) => run.shown && run.num_skipped > 0)) texts.push('\u00d7: skipped steps');
    return texts.join('; ');
  };

  const draw = (chart) => {
    const width = Math.max(240, chart.body.clientWidth), height = chart.wide ? 340 : 230;
    const { left, right, top, bottom } = MARGIN;
    const [x0, x1] = view.zoom || allX();
    const [y0, y1, beyond] = scaleOf(chart, x0, x1);
    const isLog = view.log && chart.log;
    const x = (v) => left + (v - x0) / (x1 - x0 || 1) * (width - left - right);
    const share = isLog ? (v) => Math.log(v / y0) / Math.log(y1 / y0) : (v) => (v - y0) / (y1 - y0);
    const y = (v) => height - bottom - Math.max(-1, Math.min(2, share(v))) * (height - bottom - top);
    chart.x = x;
    chart.xBack = (px) => x0 + (px - left) / (width - left - right) * (x1 - x0);
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': chart.title + ' by ' + AXES[view.axis].name });
    const defs = svg('defs'), clip = svg('clipPath', { id: 'clip-' + chart.id });
    clip.append(svg('rect', { x: left - 5, y: top - 6, width: width - left - right + 10, height: height - top - bottom + 7 }));
    defs.append(clip);
    picture.append(defs);
    for (const value of (isLog && logTicks(y0, y1)) || evenTicks(y0, y1, chart.wide ? 6 : 5)) {
      picture.append(svg('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), style: 'stroke: var(--line)' }));
      picture.append(svg('text', { x: left - 8, y: y(value) + 4, 'text-anchor': 'end' }, chart.tick ? chart.tick(value) : short(value)));
    }
    for (const value of evenTicks(x0, x1, Math.max(2, width / 110))) {
      picture.append(svg('line', { x1: x(value), x2: x(value), y1: height - bottom, y2: height - bottom + 4, style: 'stroke: var(--line)' }));
      picture.append(svg('text', { x: x(value), y: height - bottom + 17, 'text-anchor': 'middle' }, AXES[view.axis].tick(value)));
    }
    picture.append(svg('text', { class: 'axis-name', x: width - right, y: height - 4, 'text-anchor': 'end' }, AXES[view.axis].name));
    const lines = svg('g', { 'clip-path': `url(#clip-${chart.id})` }), over = svg('g');
    drawMarks(chart, over, x, top, height - bottom, (at) => at >= x0 && at <= x1);
    for (const run of runs) {
      if (!run.shown) continue;
      for (const { curve, raw, set } of chart.series(run)) {
        const { path, alone } = pathOf(run, curve, x, y, isLog);
        if (path) {
          lines.append(svg('path', { class: raw ? 'curve raw' : 'curve', 'data-run': run.index, d: path, 'stroke-dasharray': set === undefined ? dashOf(run) : setDash(set),
            style: `fill: none; stroke: var(--${run.color}); stroke-width: ${raw ? 1 : 1.7}; stroke-linejoin: round` }));
        }
        const all = chart.dots && curve.values.length <= 60 ? path.split(/[ML]/).slice(1) : alone;
        for (const at of all) lines.append(markOf(at, set || 0, run.color, chart.dots ? 3.5 : 2));
      }
    }
    chart.cross = svg('line', { y1: top, y2: height - bottom, style: 'stroke: var(--text); stroke-width: 1; opacity: .45', visibility: 'hidden' });
    chart.brush = svg('rect', { y: top, height: height - top - bottom, style: 'fill: var(--accent); opacity: .15', visibility: 'hidden' });
    // Marks lie above the area that takes the pointer, so that they can be pointed at.
    picture.append(lines, chart.brush, chart.cross, svg('rect', { class: 'area', x: left, y: top, width: width - left - right, height: height - top - bottom, style: 'fill: transparent' }), over);
    chart.note.textContent = chart.id === 'loss' ? lossNote() : beyond === null ? '' : 'highest: ' + chart.format(beyond) + ', beyond the scale';
    chart.body.replaceChildren(picture);
    chart.picture = picture;
  };

  const drawAll = () => {
    for (const chart of CHARTS) if (!chart.card.hidden) draw(chart);
  };

  // ---- looking closer --------------------------------------------------------------------------

  // The point of the curve that is nearest to x.
  const nearest = (run, curve, x) => {
    let low = 0, high = curve.steps.length;
    if (high === 0) return -1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xOf(run, curve.steps[middle]) > x) high = middle; else low = middle + 1;
    }
    if (low === 0) return 0;
    if (low === curve.steps.length) return low - 1;
    return xOf(run, curve.steps[low]) - x < x - xOf(run, curve.steps[low - 1]) ? low : low - 1;
  };
  const cross = (x) => {
    for (const chart of CHARTS) {
      if (!chart.cross) continue;
      if (x === null) { chart.cross.setAttribute('visibility', 'hidden'); continue; }
      chart.cross.setAttribute('x1', chart.x(x));
      chart.cross.setAttribute('x2', chart.x(x));
      chart.cross.setAttribute('visibility', 'visible');
    }
  };
  const rowOf = (run, who, text) => add(make('span', 'row'), dot(run), make('span', 'who', who), make('em', '', text));
  const labelOf = (chart, run, raw, set) => {
    const ofSet = set !== undefined && sets.length > 1 ? sets[set] : '';
    if (runs.length > 1) return run.name + (ofSet && ', ' + ofSet);
    return ofSet || (raw ? 'this step' : chart.id === 'loss' ? 'smoothed' : chart.title);
  };
  const look = (chart, event) => {
    const box = chart.picture.getBoundingClientRect();
    const x = chart.xBack(event.clientX - box.left), lines = [];
    const span = view.zoom || allX(), slack = (span[1] - span[0]) * 0.03;
    for (const run of runs) {
      if (!run.shown) continue;
      for (const { curve, raw, set } of chart.series(run)) {
        const i = nearest(run, curve, x);
        if (i < 0 || (!chart.dots && x > xOf(run, run.step) + slack)) continue;
        // With several runs the loss of each step would only fill the tip.
        if (raw && runs.length > 1) continue;
        const value = curve.values[i] === null ? 'no value' : chart.format(curve.values[i]);
        const isSkipped = chart.id !== 'evaluation' && run.skipped.includes(curve.steps[i]);
        lines.push(rowOf(run, labelOf(chart, run, raw, set), value + ' at ' + count(curve.steps[i]) + (isSkipped ? ', skipped' : '')));
      }
    }
    cross(x);
    if (lines.length === 0) { tip.hidden = true; return; }
    showTip(event, chart.title + (chart.id === 'loss' && runs.length > 1 ? ' (smoothed)' : '') + ', ' + (view.axis === 'steps' ? 'step ' : '') + AXES[view.axis].text(x), lines);
  };
  const zoomTo = (zoom) => {
    view.zoom = zoom;
    byId('zoom-all').disabled = zoom === null;
    drawAll();
  };
  const listenTo = (chart) => {
    let from = null;
    const body = chart.body;
    const place = (event) => event.clientX - chart.picture.getBoundingClientRect().left;
    body.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      from = place(event);
      body.setPointerCapture(event.pointerId);
    });
    body.addEventListener('pointermove', (event) => {
      const at = place(event);
      if (from === null || Math.abs(at - from) < 4) return look(chart, event);
      tip.hidden = true;
      chart.brush.setAttribute('x', Math.min(at, from));
      chart.brush.setAttribute('width', Math.abs(at - from));
      chart.brush.setAttribute('visibility', 'visible');
    });
    body.addEventListener('pointerup', (event) => {
      const at = place(event), start = from;
      from = null;
      if (start === null) return;
      chart.brush.setAttribute('visibility', 'hidden');
      if (Math.abs(at - start) < 8) return;
      const [low, high] = allX();
      const ends = [chart.xBack(Math.min(at, start)), chart.xBack(Math.max(at, start))];
      const zoom = [Math.max(low, ends[0]), Math.min(high, ends[1])];
      if (zoom[1] > zoom[0]) zoomTo(zoom);
    });
    body.addEventListener('pointercancel', () => { from = null; chart.brush.setAttribute('visibility', 'hidden'); });
    body.addEventListener('pointerleave', () => { tip.hidden = true; cross(null); });
    body.addEventListener('dblclick', () => zoomTo(null));
  };

  // ---- the page --------------------------------------------------------------------------------

  const stepsText = (run) => (run.step < 0 ? '\u2013' : count(run.step) + (run.total_steps > 0 ? ' of ' + count(run.total_steps) : ''));
  const tagOf = (status) => make('span', 'tag' + (status === 'finished' ? ' yes' : ['failed', 'damaged', 'interrupted'].includes(status) ? ' no' : ''), status || 'unknown');
  const bestText = (run) => (run.best.loss === null ? '' : 'step ' + count(run.best.step) + (sets.length > 1 ? ', ' + run.best.set : ''));
  const skippedText = (run) => (run.num_skipped === 0 ? '' : count(run.num_skipped) + (run.num_skipped === 1 ? ' step skipped' : ' steps skipped'));

  const fillHeader = () => {
    byId('facts').hidden = runs.length !== 1;
    if (runs.length !== 1) return;
    const run = runs[0];
    const fact = (label, value) => { if (value) add(byId('facts'), add(make('div'), make('dt', '', label), make('dd', '', value))); };
    tile('Status', run.status || 'unknown', skippedText(run) || ' ', run.status === 'failed' ? ' bad' : '');
    tile('Steps', stepsText(run), short(run.tokens) + ' tokens');
    tile('Last loss', lossText(run.last_loss), ' ');
    if (run.best.loss !== null) tile('Best evaluation', lossText(run.best.loss), bestText(run));
    tile('Tokens per second', whole(run.pace), run.step_s === null ? ' ' : seconds(run.step_s) + ' per step' + (run.predicted_step_s ? ', predicted ' + seconds(run.predicted_step_s) : ''));
    fact('started', run.started && run.started + ' UTC');
    fact('folder', run.path);
  };
  const fillRuns = () => {
    byId('runs').hidden = runs.length < 2;
    if (runs.length < 2) return;
    const table = tableOf([['run'], ['status'], ['steps', 'num'], ['tokens', 'num'], ['last loss', 'num'], ['best evaluation', 'num'], ['tokens/s', 'num'], ['step time', 'num']]);
    const cell = (text, more) => {
      const node = make('td', 'num', text);
      if (more) node.append(make('span', 'cell-more', more));
      return node;
    };
    for (const run of runs) {
      const name = add(make('td'), dot(run), run.name, make('span', 'cell-more', run.started && run.started + ' UTC'));
      table.append(add(make('tr'), name, add(make('td'), tagOf(run.status), make('span', 'cell-more', skippedText(run))), cell(stepsText(run)), cell(short(run.tokens)),
        cell(lossText(run.last_loss)), cell(lossText(run.best.loss), bestText(run)), cell(whole(run.pace)),
        cell(run.step_s === null ? '\u2013' : seconds(run.step_s), run.predicted_step_s ? 'predicted ' + seconds(run.predicted_step_s) : '')));
    }
    byId('runs').querySelector('.scroll-x').append(table);
  };
  const fillProblems = () => {
    const texts = [];
    for (const run of runs) {
      const who = runs.length > 1 ? run.name + ': ' : '';
      if (!trained.includes(run)) texts.push(who + (runs.length > 1 ? 'no steps yet.' : 'No steps yet: the charts appear when the run has trained.'));
      if (run.problem) texts.push(who + run.problem);
    }
    byId('problems').hidden = texts.length === 0;
    for (const text of texts) byId('problems').querySelector('ul').append(make('li', '', text));
  };

  const fillControls = () => {
    byId('controls').hidden = trained.length === 0;
    if (runs.length > 1) {
      for (const run of runs) {
        const button = add(make('button'), dot(run), make('span', '', run.name));
        button.type = 'button';
        button.title = run.name;
        button.setAttribute('aria-pressed', 'true');
        button.addEventListener('click', () => {
          run.shown = !run.shown;
          button.setAttribute('aria-pressed', String(run.shown));
          drawAll();
        });
        byId('toggles').append(button);
      }
    }
    const toggle = (id, key) => byId(id).addEventListener('click', () => {
      view[key] = !view[key];
      byId(id).setAttribute('aria-pressed', String(view[key]));
      drawAll();
    });
    toggle('log', 'log');
    toggle('marks', 'marks');
    byId('axis').addEventListener('change', (event) => {
      view.axis = event.target.value;
      zoomTo(null);
    });
    byId('zoom-all').addEventListener('click', () => zoomTo(null));
  };
  const fillCharts = () => {
    for (const chart of CHARTS) {
      chart.card = make('section', 'card chart' + (chart.wide ? ' wide' : ''));
      chart.card.id = 'chart-' + chart.id;
      chart.note = make('span', 'off-scale');
      chart.body = make('div', 'body');
      chart.card.append(add(make('div', 'head'), make('h2', '', chart.title), chart.note));
      if (chart.sets && sets.length > 1) {
        const legend = make('div', 'legend');
        sets.forEach((name, k) => {
          const line = svg('svg', { viewBox: '0 0 30 10', width: 30, height: 10 });
          line.append(svg('line', { x1: 0, x2: 30, y1: 5, y2: 5, 'stroke-dasharray': setDash(k), style: 'stroke: var(--soft); stroke-width: 1.7' }), markOf('15 5', k, 'soft', 3.5));
          legend.append(add(make('span'), line, name));
        });
        chart.card.append(legend);
      }
      chart.card.append(chart.body);
      chart.card.hidden = !runs.some((run) => chart.series(run).some(({ curve }) => curve.values.some((value) => value !== null)));
      byId('charts').append(chart.card);
      listenTo(chart);
    }
    // No hole in the last row of two.
    const narrow = CHARTS.filter((chart) => !chart.card.hidden && !chart.wide);
    if (narrow.length % 2 === 1) narrow[narrow.length - 1].card.classList.add('wide');
  };

  const fillMemory = () => {
    const known = runs.filter((run) => run.memory.predicted !== null || run.memory.measured !== null);
    byId('memory').hidden = known.length === 0;
    byId('memory-hint').textContent = 'Tensors at the peak of the step: predicted (pale) and measured (full color). A run measures the parts at its end.';
    const most = Math.max(1, ...known.flatMap((run) => [run.memory.predicted || 0, run.memory.measured || 0]));
    const text = (x) => (x === null ? '\u2013' : bytes(x));
    for (const run of known) {
      const bars = make('div', 'bars');
      for (const part of [{ name: 'peak', ...run.memory, whole: true }, ...run.memory.parts]) {
        if (!part.predicted && !part.measured) continue;
        const pair = make('div', 'pair');
        for (const key of ['predicted', 'measured']) {
          if (part[key] === null) continue;
          const bar = paint(make('i', key), run.color);
          bar.style.width = 100 * part[key] / most + '%';
          pair.append(bar);
        }
        const className = part.whole ? ' whole-row' : '';
        bars.append(make('div', className.trim(), part.name), pair, make('div', 'num' + className, text(part.predicted) + ' / ' + text(part.measured)));
      }
      byId('memory').querySelector('.memory').append(add(make('div'), add(make('h3'), ...(runs.length > 1 ? [dot(run)] : []), runs.length > 1 ? run.name : 'predicted / measured'), bars));
    }
  };
  const fillDifferences = () => {
    byId('differences').hidden = data.differences.length === 0;
    const table = tableOf([['key']]);
    const heads = table.querySelector('tr');
    for (const run of runs) heads.append(add(make('th'), dot(run), run.name));
    for (const row of data.differences) {
      table.append(add(make('tr'), make('td', 'name', row.key), ...row.values.map((value) => make('td', '', value === '' ? '\u2013' : value))));
    }
    byId('differences').querySelector('.scroll-x').append(table);
  };
  const fillEvents = () => {
    const eventful = runs.filter((run) => run.events.length > 0);
    byId('events').hidden = eventful.length === 0;
    for (const run of eventful) {
      const table = make('table');
      for (const event of run.events) {
        table.append(add(make('tr', event.kind), make('td', '', event.time), make('td', 'num', event.step >= 0 ? 'step ' + count(event.step) : ''), make('td', 'text', event.text)));
      }
      const list = add(make('div', 'scroll-y'), table);
      if (runs.length === 1) { byId('events').lastElementChild.append(list); continue; }
      const failures = run.events.filter((event) => event.kind === 'failure').length;
      const details = add(make('details'), add(make('summary'), dot(run), run.name + ': ' + run.events.length + ' events' + (failures ? ', ' + failures + (failures > 1 ? ' failures' : ' failure') : '')), list);
      byId('events').lastElementChild.append(details);
    }
  };

  try {
    fillHeader();
    fillRuns();
    fillProblems();
    fillControls();
    fillCharts();
    fillMemory();
    fillDifferences();
    fillEvents();
    drawAll();
    // Every color is a variable, so a new theme needs no new drawing.
    onTheme(() => {});
    let width = byId('charts').clientWidth;
    new ResizeObserver(() => {
      if (byId('charts').clientWidth === width) return;
      width = byId('charts').clientWidth;
      drawAll();
    }).observe(byId('charts'));
    if (!root.dataset.check) root.dataset.check = 'ok ' + runs.length + ' runs, ' + points + ' points';
  } catch (error) {
    fail(error.message);
    throw error;
  }
})();
