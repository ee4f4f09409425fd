// SPDX-License-Identifier: Apache-2.0
// A caption and its picture, and a clip and its frames, made by formula.
import { synthesize, type Synthetic } from './synthetic';

// A PNG file of one white pixel.
export const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC';
const READ = ['<s>', '▁a', '▁red', '▁circ', 'le'];

// The source of a translation becomes a picture of 2 x 3 places.
export function pictured(): Synthetic {
  const places = ['1,1', '1,2', '1,3', '2,1', '2,2', '2,3'];
  const made = synthesize('', 'shapes.png', 'a red circle', places, READ, { layers: 2, heads: 4 });
  made.header.axes[0].pictures = { rows: 2, columns: 3, images: [DOT] };
  made.header.steps = 0;
  made.header.start = { section: 2 };
  return made;
}

// Four frames of two places each.
export function clip(): Synthetic {
  const places = [1, 2, 3, 4].flatMap((frame) => [`${frame}: 1,1`, `${frame}: 1,2`]);
  const made = synthesize('', 'left.npy', '', places, [], { layers: 2, heads: 2 });
  made.header.axes[0].pictures = { rows: 1, columns: 2, images: [DOT, DOT, DOT, DOT] };
  return made;
}
