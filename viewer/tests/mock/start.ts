// SPDX-License-Identifier: Apache-2.0
// npm run mock: the page with traces made by formula, to look at while working on it.
import { startMock } from './server';

const mock = await startMock();
console.log(mock.url);
