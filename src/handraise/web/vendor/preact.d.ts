/** What `preact.js` exports, as far as the app uses it; see README.md beside it. */

// Virtual DOM -------------------------------------------------------------------------------------------------------

export type Key = string | number;
export type RefObject<T> = { current: T };
export type RefCallback<T> = (instance: T | null) => void | (() => void);
export type Ref<T> = RefCallback<T> | RefObject<T | null> | null;

export interface VNode<P = any> {
  type: ComponentType<P> | string;
  props: P & { children?: ComponentChildren };
  key: Key | null | undefined;
  ref?: Ref<any>;
}

export type ComponentChild = VNode | ReadonlySignal<any> | string | number | bigint | boolean | null | undefined;
export type ComponentChildren = ComponentChild | readonly ComponentChildren[];
/** What a component returns. */
export type Rendered = ComponentChildren;

export type RenderableProps<P> = P & { readonly key?: Key; readonly children?: ComponentChildren; readonly ref?: Ref<any> };

export interface FunctionComponent<P = {}> {
  (props: RenderableProps<P>, context?: any): ComponentChildren;
  displayName?: string;
}
export interface ComponentClass<P = {}, S = {}> {
  new (props: P, context?: any): Component<P, S>;
  displayName?: string;
}
export type ComponentType<P = {}> = ComponentClass<P> | FunctionComponent<P>;

export interface ErrorInfo {
  componentStack?: string;
}

export abstract class Component<P = {}, S = {}> {
  constructor(props?: P, context?: any);
  static getDerivedStateFromError?(error: any): object | null;
  state: Readonly<S>;
  props: RenderableProps<P>;
  context: any;
  setState<K extends keyof S>(
    state: ((previous: Readonly<S>, props: Readonly<P>) => Pick<S, K> | null) | Pick<S, K> | null,
    callback?: () => void,
  ): void;
  forceUpdate(callback?: () => void): void;
  componentDidMount?(): void;
  componentDidUpdate?(previousProps: Readonly<P>, previousState: Readonly<S>, snapshot: any): void;
  componentWillUnmount?(): void;
  componentDidCatch?(error: any, info: ErrorInfo): void;
  shouldComponentUpdate?(nextProps: Readonly<P>, nextState: Readonly<S>, nextContext: any): boolean;
  abstract render(props?: RenderableProps<P>, state?: Readonly<S>, context?: any): ComponentChildren;
}

export function h(type: string, props: Record<string, any> | null, ...children: ComponentChildren[]): VNode;
export function h<P>(type: ComponentType<P>, props: RenderableProps<P> | null, ...children: ComponentChildren[]): VNode<P>;
/** A template that becomes vnodes: html`<${Card} ask=${ask} />`. With several roots it gives an array at run time. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;

export function render(vnode: ComponentChildren, parent: Element | DocumentFragment | ShadowRoot): void;
export function cloneElement<P>(vnode: VNode<P>, props?: any, ...children: ComponentChildren[]): VNode<P>;
export function createPortal(vnode: ComponentChildren, container: Element): VNode;
export function createRef<T = any>(): RefObject<T | null>;
export function toChildArray(children: ComponentChildren): (VNode | string | number)[];
export const Fragment: FunctionComponent<{}>;

export interface Context<T> extends FunctionComponent<{ value: T }> {
  Provider: FunctionComponent<{ value: T }>;
  Consumer: FunctionComponent<{ children: (value: T) => ComponentChildren }>;
}
export function createContext<T>(defaultValue: T): Context<T>;

export const options: {
  vnode?(vnode: VNode): void;
  unmount?(vnode: VNode): void;
  diffed?(vnode: VNode): void;
  event?(event: Event): any;
  requestAnimationFrame?(callback: () => void): void;
  debounceRendering?(callback: () => void): void;
};

// Hooks -------------------------------------------------------------------------------------------------------------

type Inputs = readonly unknown[];
type EffectCallback = () => void | (() => void);
export type Dispatch<A> = (value: A) => void;
export type StateUpdater<S> = S | ((previous: S) => S);
export type Reducer<S, A> = (previous: S, action: A) => S;

export function useState<S>(initial: S | (() => S)): [S, Dispatch<StateUpdater<S>>];
export function useState<S = undefined>(): [S | undefined, Dispatch<StateUpdater<S | undefined>>];
export function useReducer<S, A>(reducer: Reducer<S, A>, initial: S): [S, Dispatch<A>];
export function useReducer<S, A, I>(reducer: Reducer<S, A>, argument: I, init: (argument: I) => S): [S, Dispatch<A>];
export function useRef<T>(initial: T): RefObject<T>;
export function useRef<T>(initial: T | null): RefObject<T | null>;
export function useEffect(effect: EffectCallback, inputs?: Inputs): void;
export function useLayoutEffect(effect: EffectCallback, inputs?: Inputs): void;
export function useImperativeHandle<T, R extends T>(ref: Ref<T>, create: () => R, inputs?: Inputs): void;
export function useCallback<T extends Function>(callback: T, inputs: Inputs): T;
export function useMemo<T>(factory: () => T, inputs: Inputs | undefined): T;
export function useContext<T>(context: Context<T>): T;
export function useDebugValue<T>(value: T, formatter?: (value: T) => any): void;
export function useErrorBoundary(callback?: (error: any, info: ErrorInfo) => Promise<void> | void): [any, () => void];
export function useId(): string;

// Signals -----------------------------------------------------------------------------------------------------------

declare const BRAND: unique symbol;

export interface SignalOptions<T = any> {
  watched?: (this: Signal<T>) => void;
  unwatched?: (this: Signal<T>) => void;
  name?: string;
}
export interface ReadonlySignal<T = any> {
  readonly value: T;
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
  valueOf(): T;
  toString(): string;
  toJSON(): T;
  brand: typeof BRAND;
}
export class Signal<T = any> implements ReadonlySignal<T> {
  constructor(value?: T, options?: SignalOptions<T>);
  get value(): T;
  set value(value: T);
  peek(): T;
  subscribe(listener: (value: T) => void): () => void;
  valueOf(): T;
  toString(): string;
  toJSON(): T;
  brand: typeof BRAND;
}

export function signal<T>(value: T, options?: SignalOptions<T>): Signal<T>;
export function signal<T = undefined>(): Signal<T | undefined>;
export function computed<T>(compute: () => T, options?: SignalOptions<T>): ReadonlySignal<T>;
/** Gives a function that ends it. What the callback returns runs before each later call and at the end. */
export function effect(callback: EffectCallback, options?: { name?: string }): () => void;
export function batch<T>(callback: () => T): T;
export function untracked<T>(callback: () => T): T;
export function useSignal<T>(value: T, options?: SignalOptions<T>): Signal<T>;
export function useSignal<T = undefined>(): Signal<T | undefined>;
export function useComputed<T>(compute: () => T, options?: SignalOptions<T>): ReadonlySignal<T>;
export function useSignalEffect(callback: EffectCallback, options?: { name?: string }): void;
